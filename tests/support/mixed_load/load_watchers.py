"""Watchers of a mixed load: each follows one kind in short, resumed watches and keeps all changes.

Used by `run`. `problems` compares what a watcher received with the writers' logs: for every object
each accepted write once, in order, and nothing else.
"""

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from support.mixed_load import client, load_writers

SLACK_S = 60.0
"""How much longer than its timeoutSeconds a watch may take on a busy or paused machine."""


@dataclass
class Segment:
    """Changes since one list. `base`: tokens by name; `events`: (action, name, token, version)."""

    start: int
    base: dict[str, str]
    events: list[tuple[str, str, str, int]] = field(default_factory=list)


class Watcher:
    """Follows one kind and records what it receives."""

    def __init__(
        self, kind: load_writers.Kind, seed: str, server: client.Client, *, bookmarks: bool
    ) -> None:
        self.kind = kind
        self.bookmarks = bookmarks
        self.name = f"{kind.name} watcher {seed}, bookmarks {bookmarks}"
        self.segments: list[Segment] = []
        self.watches = 0
        self.marks = 0
        self.disorder: list[str] = []
        self._chance = random.Random(f"watcher-{seed}")
        self._server = server
        self._at = 0

    def run(self, last: set[str], abort: threading.Event) -> None:
        """Watch until all objects of these names have been seen, or `abort` is set."""
        self._list()
        while not last <= self._seen_names() and not abort.is_set():
            try:
                self._watch()
            except client.BROKEN:
                time.sleep(0.02)

    def _seen_names(self) -> set[str]:
        found: set[str] = set()
        for segment in self.segments:
            found |= segment.base.keys() | {event[1] for event in segment.events}
        return found

    def _list(self) -> None:
        until = time.monotonic() + load_writers.RESOLVED_WITHIN_S
        found = self._server.insist("GET", self.kind.path, until=until)
        assert found.status == 200, found.document
        base = {
            item["metadata"]["name"]: item["data"]["token"]
            for item in found.document["items"]
            if item["metadata"]["name"].startswith("w")
        }
        self._at = found.version
        self.segments.append(Segment(self._at, base))

    def _watch(self) -> None:
        seconds = self._chance.choice((1, 1, 2, 4))
        marks = "&allowWatchBookmarks=true" if self.bookmarks else ""
        path = f"{self.kind.path}?watch=1&resourceVersion={self._at}"
        connection, token = self._server.connect(timeout_s=seconds + SLACK_S)
        try:
            connection.request(
                "GET",
                f"{path}&timeoutSeconds={seconds}{marks}",
                headers={"Authorization": f"Bearer {token}"},
            )
            response = connection.getresponse()
            self.watches += 1
            if response.status == 410:
                self._list()
            elif response.status == 200:
                self._read(response)
            else:
                assert response.status in (429, 500, 503, 504), response.read()
                time.sleep(0.05)
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> None:
        while line := response.readline():
            if not line.endswith(b"\n"):
                return  # cut off by a kill
            event = json.loads(line)
            if event["type"] == "ERROR":
                assert event["object"]["code"] == 410, event
                self._list()
                return
            self._take(event["type"], event["object"])

    def _take(self, action: str, item: dict[str, Any]) -> None:
        version = int(item["metadata"]["resourceVersion"])
        if action == "BOOKMARK":
            self.marks += 1
            if version < self._at:
                self.disorder.append(f"bookmark {version} after {self._at}")
        else:
            if version <= self._at:
                self.disorder.append(f"{action} {item['metadata']['name']} {version}, {self._at}")
            name = item["metadata"]["name"]
            if name.startswith("w"):
                event = (action, name, item["data"]["token"], version)
                self.segments[-1].events.append(event)
        self._at = version


def problems(watcher: Watcher, writers: list[load_writers.Writer]) -> list[str]:
    """Return the differences between what this watcher received and what was written."""
    found = list(watcher.disorder)
    for writer in writers:
        for (kind, name), log in writer.log.items():
            if kind == watcher.kind:
                found += _of_object(name, log, watcher.segments)
    return [f"{watcher.name}: {each}" for each in found]


def _of_object(name: str, log: list[load_writers.Write], segments: list[Segment]) -> list[str]:
    wanted = [(write.action, write.token) for write in log]
    positions = {0}
    for segment in segments:
        seen = [(action, token) for action, at, token, _ in segment.events if at == name]
        base = segment.base.get(name)
        starts = {at for at in range(min(positions), len(log) + 1) if _after(log, at) == base}
        ends = {at + len(seen) for at in starts if wanted[at : at + len(seen)] == seen}
        if not ends:
            return [f"{name}: saw {seen} after {base}; written: {_near(wanted, seen)}"]
        positions = ends
    if len(log) not in positions:
        missing = wanted[max(positions) :]
        return [f"{name}: {len(missing)} writes were not seen: {missing[:5]}"]
    return []


def _after(log: list[load_writers.Write], count: int) -> str | None:
    """Return the token of an object after so many writes; None while it does not exist."""
    if count == 0 or log[count - 1].action == "DELETED":
        return None
    return log[count - 1].token


def _near(wanted: list[tuple[str, str]], seen: list[tuple[str, str]]) -> Any:
    """Return the first position at which the two differ."""
    for at, (one, other) in enumerate(zip(wanted, seen, strict=False)):
        if one != other:
            return {"at": at, "written": wanted[at : at + 4], "seen": seen[at : at + 4]}
    return {"written": len(wanted), "seen": len(seen)}
