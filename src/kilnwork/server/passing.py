"""What passes through to blobs and objects: who comes, and bodies in pieces worth the trouble.

Used by `blobs` and `objects`.
"""

import asyncio
from collections.abc import AsyncIterator

from kilnwork.api import manager
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import ports
from kilnwork.kit import errors as kit_errors
from kilnwork.server import asgi, errors, guard

PIECE_BYTES = 256 << 10
"""Read, written and hashed at once, in a thread: less would cost more to hand over than to do."""

STALL_S = 60.0
"""A caller that neither sends nor reads for so long is cut off."""

_CLUSTER = manager.CLUSTER_HEADER.lower().encode()


async def admit(scope: asgi.Scope, namespace: str, verifier: ports.TokenVerifier) -> bool:
    """True for a worker, False for a driver, of that namespace.

    Raises what to answer to somebody who is neither.
    """
    token = guard.shown_token(scope)
    if not token:
        raise errors.Unauthorized
    cluster = dict(scope["headers"]).get(_CLUSTER, b"").decode("latin-1")
    try:
        if not cluster:
            good = await verifier.verify_driver(namespace, token)
        else:
            of, _, name = cluster.partition("/")
            good = of == namespace and await verifier.verify(of, name, token)
    except channel_errors.LinkRefused as error:
        raise errors.Forbidden(error.message) from error
    except kit_errors.KilnError as error:
        raise errors.NotReady(str(error)) from error
    if not good:
        raise errors.Unauthorized
    return bool(cluster)


async def pieces(receive: asgi.Receive) -> AsyncIterator[bytes]:
    """The body. Raises BadRequest when the caller leaves or stalls."""
    waiting = bytearray()
    more = True
    while more:
        try:
            async with asyncio.timeout(STALL_S):
                message = await receive()
        except TimeoutError as error:
            raise errors.BadRequest(f"nothing came for {STALL_S:g} s") from error
        if message["type"] == "http.disconnect":
            raise errors.BadRequest("the caller has hung up")
        waiting += message.get("body", b"")
        more = message.get("more_body", False)
        if len(waiting) >= PIECE_BYTES or not more:
            yield bytes(waiting)
            waiting.clear()
