"""Writers of a mixed load: each changes its own objects and finds out which writes were accepted.

Used by `run`. When a response is lost, the object shows whether the write happened: each write
leaves its own token, and no other client writes there.
"""

import random
import threading
import time
from typing import Any, NamedTuple

from support.mixed_load import client

NAMES = 7
RESOLVED_WITHIN_S = 120.0
LAST = "last"
"""Name of the last objects: a watcher that has seen them has seen everything."""


class Kind(NamedTuple):
    """Paths of a kind; `path` is that of its list."""

    name: str
    version: str
    path: str


CONFIG_MAP = Kind("ConfigMap", "v1", "/api/v1/namespaces/default/configmaps")
WIDGET = Kind("Widget", "example.com/v1", "/apis/example.com/v1/namespaces/default/widgets")
KINDS = (CONFIG_MAP, WIDGET)

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "data": {"type": "object", "additionalProperties": {"type": "string"}}
                        },
                    }
                },
            }
        ],
    },
}


class Write(NamedTuple):
    """One accepted write. `action`: its name in a watch. `version`: 0 if its response was lost."""

    action: str
    token: str
    version: int


class Writer:
    """Writes its own objects. `log`: accepted writes of each object, in order."""

    def __init__(self, number: int, seed: int, server: client.Client) -> None:
        self._number = number
        self._chance = random.Random(f"writer-{seed}-{number}")
        self._server = server
        self._tokens = 0
        self.log: dict[tuple[Kind, str], list[Write]] = {}
        self.unheard = 0

    def run(self, stop: threading.Event) -> None:
        """Write until `stop` is set; then write the last object."""
        while not stop.is_set():
            kind = self._chance.choice(KINDS)
            self.write(kind, f"w{self._number}-{self._chance.randrange(NAMES)}")
            time.sleep(self._chance.choice((0, 0, 0.001, 0.02)))
        for kind in KINDS:
            self.write(kind, f"w{self._number}-{LAST}")

    def write(self, kind: Kind, name: str) -> None:
        """Create, replace, patch or delete one object, until the outcome is known."""
        log = self.log.setdefault((kind, name), [])
        there = bool(log) and log[-1].action != "DELETED"
        action = self._chance.choice(("PUT", "PATCH", "PATCH", "DELETE")) if there else "POST"
        self._tokens += 1
        token = f"{self._number}-{self._tokens}"
        until = time.monotonic() + RESOLVED_WITHIN_S
        while not self._tried(kind, name, action, token, log):
            if time.monotonic() > until:
                raise TimeoutError(f"{action} {name}: the server stays away")
            time.sleep(0.05)

    def _tried(self, kind: Kind, name: str, action: str, token: str, log: list[Write]) -> bool:
        path = kind.path if action == "POST" else f"{kind.path}/{name}"
        body: dict[str, Any] = {
            "apiVersion": kind.version,
            "kind": kind.name,
            "metadata": {"name": name},
            "data": {"token": token, "more": "x" * self._chance.choice((0, 10, 3000))},
        }
        if action == "PUT":
            body["metadata"] = {"name": name, "resourceVersion": str(log[-1].version)}
        content = "application/json"
        if action == "PATCH":
            content = "application/merge-patch+json"
        done = {"POST": "ADDED", "DELETE": "DELETED"}.get(action, "MODIFIED")
        try:
            found = self._server.request(
                action, path, None if action == "DELETE" else body, content=content
            )
        except client.BROKEN:
            return self._happened(kind, name, done, token, log)
        if found.status in (200, 201):
            version = 0 if done == "DELETED" else found.version
            log.append(Write(done, log[-1].token if done == "DELETED" else token, version))
            return True
        if found.status >= 500 or found.status == 429:
            return self._happened(kind, name, done, token, log)
        raise AssertionError(f"{action} {path}: {found.status} {found.document}")

    def _happened(self, kind: Kind, name: str, done: str, token: str, log: list[Write]) -> bool:
        """Return whether a write whose response was lost was carried out."""
        self.unheard += 1
        until = time.monotonic() + RESOLVED_WITHIN_S
        found = self._server.insist("GET", f"{kind.path}/{name}", until=until)
        if found.status == 404:
            if done == "DELETED":
                log.append(Write(done, log[-1].token, 0))
                return True
            assert done == "ADDED", f"{name} is gone, without a DELETE"
            return False
        seen = found.document["data"]["token"]
        if done != "DELETED" and seen == token:
            log.append(Write(done, token, found.version))
            return True
        assert log, f"{name} is there, without a POST: {found.document}"
        assert seen == log[-1].token, f"{name}: {seen} instead of {log[-1].token}"
        return False
