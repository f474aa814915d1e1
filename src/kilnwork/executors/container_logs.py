"""The log of one container, as the API server has it from its node.

Used by executors that run attempts in Pods, for `port.Logging`.
"""

import contextlib
from collections.abc import AsyncGenerator

from kilnwork.api import resource
from kilnwork.executors import port
from kilnwork.kube import client


async def read(
    kube: client.Client, where: tuple[str, str], container: str, how: port.Reading
) -> AsyncGenerator[bytes, None]:
    """Yield its output. `where`: namespace and name of the Pod. Raises `KubeError`."""
    namespace, pod = where
    query = {"container": container}
    if how.follow:
        query["follow"] = "true"
    if how.max_bytes is not None:
        query["limitBytes"] = str(how.skip + how.max_bytes)
    skip = how.skip
    path = f"{resource.PODS.base(namespace)}/{pod}/log"
    async with contextlib.aclosing(kube.stream(path, query=query, endless=how.follow)) as pieces:
        async for piece in pieces:
            if len(piece) > skip:
                yield piece[skip:]
            skip = max(0, skip - len(piece))
