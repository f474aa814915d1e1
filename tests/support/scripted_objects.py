"""Objects on the scripted server: paged lists, resumable watches, 410, and faults on request.

Used by tests of caches and reflectors, to make the server do what a real one rarely does.
"""

import asyncio
from typing import Any

import aiohttp.web
import msgspec

from support import scripted_apiserver


class Objects:
    """One collection whose changes are kept since `oldest`; every path is this collection."""

    def __init__(self, stand: scripted_apiserver.ScriptedApiServer) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest = 100
        self.page = 2
        self.lists = 0
        self.refuse: aiohttp.web.Response | None = None
        self.expire_pages = 0
        self.watches_opened = 0
        self.watches_expired = 0
        self.end_watches_at_once = False
        self._changes: list[tuple[int, bytes]] = []
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._aborts: set[asyncio.Task[Any]] = set()
        stand.handler = self._serve

    @property
    def watching(self) -> int:
        """Return how many watches are open."""
        return len(self._streams)

    def put(self, name: str, *, uid: str = "", **fields: Any) -> None:
        kind = "MODIFIED" if name in self.stored else "ADDED"
        self.version += 1
        metadata = {"name": name, "namespace": "x", "uid": uid or f"uid-{name}"}
        obj = {"metadata": {**metadata, "resourceVersion": str(self.version)}, **fields}
        self.stored[name] = obj
        self._tell(kind, obj)

    def delete(self, name: str) -> None:
        """Delete an object; watches get its last state."""
        self.version += 1
        obj = self.stored.pop(name)
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", {**obj, "last": True})

    def bookmark(self) -> None:
        """Send the newest version to watches, as for changes that they do not select."""
        self.version += 1
        self._send({"type": "BOOKMARK", "object": _only_version(self.version)})

    def send_error(self, code: int, reason: str) -> None:
        """Send an ERROR item as the last one of every open watch."""
        status = {"kind": "Status", "code": code, "reason": reason, "message": reason}
        self._send({"type": "ERROR", "object": status})
        self.end_watches()

    def compact(self) -> None:
        """Drop all changes so far."""
        self.oldest = self.version

    def end_watches(self) -> None:
        """End every stream, as a server does when the time limit of a watch is over."""
        for stream in self._streams:
            stream.put_nowait(None)

    def cut_watches(self) -> None:
        for member in self._aborts:
            member.cancel()

    def _tell(self, kind: str, obj: dict[str, Any]) -> None:
        line = self._send({"type": kind, "object": obj})
        self._changes.append((self.version, line))

    def _send(self, item: dict[str, Any]) -> bytes:
        line = msgspec.json.encode(item) + b"\n"
        for stream in self._streams:
            stream.put_nowait(line)
        return line

    async def _serve(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        if self.refuse is not None:
            return aiohttp.web.Response(
                status=self.refuse.status, headers=self.refuse.headers, body=self.refuse.body
            )
        if request.query.get("watch") == "true":
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        at = int(request.query.get("continue", "0"))
        if at and self.expire_pages:
            self.expire_pages -= 1
            return aiohttp.web.json_response({"code": 410, "reason": "Expired"}, status=410)
        self.lists += at == 0
        size = min(self.page, int(request.query.get("limit", "0"))) or len(self.stored) + 1
        objects = list(self.stored.values())
        more = {"continue": str(at + size)} if at + size < len(objects) else {}
        metadata = {"resourceVersion": str(self.version), **more}
        return aiohttp.web.json_response({"metadata": metadata, "items": objects[at : at + size]})

    async def _watch(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        self.watches_opened += 1
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            self.watches_expired += 1
            return aiohttp.web.json_response({"code": 410, "reason": "Expired"}, status=410)
        response = aiohttp.web.StreamResponse()
        await response.prepare(request)
        if self.end_watches_at_once:
            return response
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, line in self._changes:
            if version > since:
                stream.put_nowait(line)
        self._streams.add(stream)
        me = asyncio.current_task()
        assert me is not None
        self._aborts.add(me)
        try:
            while (line_or_end := await stream.get()) is not None:
                await response.write(line_or_end)
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
            raise
        finally:
            self._aborts.discard(me)
            self._streams.discard(stream)
        return response


def _only_version(version: int) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}}
