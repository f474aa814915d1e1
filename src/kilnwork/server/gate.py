"""A place for an app that comes later: answers 503 until it is there, and again when it is gone.

Used by the composition root. The server listens before the dispatcher runs, since the dispatcher's
neighbours need the API.
"""

from kilnwork.server import asgi, errors


class Gate:
    """An ASGI app in front of another. `app` is set and cleared by the composition root."""

    def __init__(self) -> None:
        self.app: asgi.App | None = None

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Pass the request on, or answer 503."""
        if self.app is None:
            await asgi.problem(send, errors.NotReady())
        else:
            await self.app(scope, receive, send)
