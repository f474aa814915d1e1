"""The log of one container, read through the API server.

Used by executors that run attempts in Pods, for `port.ReadsLogs`.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable

from kilnwork.api import api_resources
from kilnwork.executors import port
from kilnwork.kube import client

ReadLog = Callable[[str, str, str, int | None], AsyncGenerator[bytes, None] | None]
"""Reads the output of a container, given namespace, Pod, container and maximum number of bytes.
Returns None if this process does not have the output, which is then requested from the API
server."""


async def read(
    kube: client.Client,
    where: tuple[str, str],
    container: str,
    how: port.LogRange,
    *,
    read_log: ReadLog | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the output of one container. `where`: namespace and name of its Pod. Raises
    `KubeError`.
    """
    limit = None if how.max_bytes is None else how.skip + how.max_bytes
    here = None if how.follow or read_log is None else read_log(*where, container, limit)
    output = (
        _asked(kube, where, container, follow=how.follow, limit=limit) if here is None else here
    )
    skip = how.skip
    async with contextlib.aclosing(output) as pieces:
        async for piece in pieces:
            if len(piece) > skip:
                yield piece[skip:]
            skip = max(0, skip - len(piece))


async def _asked(
    kube: client.Client, where: tuple[str, str], container: str, *, follow: bool, limit: int | None
) -> AsyncGenerator[bytes, None]:
    namespace, pod = where
    query = {"container": container}
    if follow:
        query["follow"] = "true"
    if limit is not None:
        query["limitBytes"] = str(limit)
    path = f"{api_resources.PODS.base(namespace)}/{pod}/log"
    async with contextlib.aclosing(kube.stream(path, query=query, endless=follow)) as pieces:
        async for piece in pieces:
            yield piece
