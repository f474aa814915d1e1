"""Plays a story on an API server, and returns its responses without what differs on every
server.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from support import kube_servers, stories

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"(?!2020)20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSION = re.compile(r"(?<=: )\d+|(?<=\")\d{2,}(?=\")|(?<=\()\d+(?=\))")
_DUMP = re.compile(r'(?<=Invalid value: )"(\{.*\}|map\[.*\])"(?=: )')
_MADE = re.compile(r"made-[bcdfghjklmnpqrstvwxz2456789]{5}")
ABSENT = "nothing"


_OURS = re.compile("has no effect here: |refused by nodes of kilnwork: ")
"""Warnings that the real API server does not have: docs/reference/fields.md."""


class Player:
    """Plays one story on one server."""

    def __init__(self, http: kube_servers.Http, namespace: str) -> None:
        self._http = http
        self._namespace = namespace
        self._responses: list[Any] = []
        self._labels: dict[str, str] = {}

    def play(self, step: stories.Step) -> dict[str, Any]:
        """Send a request; return the normalized response."""
        path = step.path.replace("*", self._namespace)
        asked = {name: self._resolve(value) for name, value in step.query.items()}
        query = {
            name: str(v).replace("*", self._namespace) for name, v in asked.items() if v != ABSENT
        }
        body = None if step.body is None else self._resolve(step.body)
        headers = {} if body is None else {"Content-Type": step.form}
        data = None if body is None else json.dumps(body).encode()
        if query.get("resourceVersion") == "0":
            self._catch_up(path)
        response = self._http.send(step.method, path, data, headers=headers, **query)
        lines = response.body.splitlines() if "watch" in query else [response.body]
        decoded = [self._decode(line) for line in lines]
        self._responses.append(decoded[0] if len(decoded) == 1 else None)
        decoded = [one for one in map(_event, decoded) if one is not None]
        reported = {"status": response.status, "body": [self._normalized(one) for one in decoded]}
        return {
            **reported,
            "warnings": sorted(self._text(w) for w in response.warnings if not _OURS.search(w)),
        }

    def _catch_up(self, path: str) -> None:
        """List once, so that the server's cache has everything that was written."""
        base, _, rest = path.partition("/namespaces/")
        self._http.get(f"{base}/namespaces/{'/'.join(rest.split('/')[:2])}")

    def _decode(self, text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, dict) and "of" in value and "at" in value:
            found = self._responses[value["of"]]
            for key in value["at"]:
                found = found.get(key) if isinstance(found, dict) else None
            if found is None:
                return ABSENT
            return _merged(found, self._resolve(value["with"])) if "with" in value else found
        if isinstance(value, dict):
            return {key: self._resolve(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        return value

    def _normalized(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if _name(value) == "kube-root-ca.crt":
                return "kube-root-ca.crt"  # written by a controller, with its own certificate
            found = {k: self._normalized(value[k], k) for k in sorted(value)}
            if _is_going(value):  # the real server writes it once more before its removal
                found["metadata"].pop("resourceVersion")
            if "items" in value or value.get("type") == "BOOKMARK":
                metadata = found.get("metadata") or {}
                metadata.pop("resourceVersion", None)
                if metadata.get("continue"):
                    metadata["continue"] = "CONTINUE"
            return found
        if isinstance(value, list):
            reported = [self._normalized(item) for item in value]
            if key == "causes":  # the real server checks some fields twice
                return list({_sorted(item): item for item in reported}.values())
            return sorted(reported, key=_sorted) if key == "managedFields" else reported
        if key == "resourceVersion" and isinstance(value, str):
            return self._label(value, "version")
        if isinstance(value, float):
            return int(value) if value.is_integer() else value  # 1.0 is 1 in JSON
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = _DUMP.sub("OBJECT", text)
        text = _UID.sub(lambda match: self._label(match[0], "uid"), text)
        text = _VERSION.sub(lambda match: self._labels.get(match[0], match[0]), text)
        text = _MADE.sub(lambda match: self._label(match[0], "made"), text)
        return _TIME.sub("TIME", text).replace(self._namespace, "NAMESPACE")

    def _label(self, value: str, what: str) -> str:
        return self._labels.setdefault(value, f"{what} of step {len(self._responses)}")


def comparable(responses: Sequence[dict[str, Any]], kind: stories.Kind) -> list[dict[str, Any]]:
    """Return what must be equal in the responses to one step; differences.md has the rest."""
    if all(response["status"] < 300 for response in responses):
        return [{**response, "warnings": None} for response in responses]
    loosely = kind.kind in ("Pod", "Widget", "Secret") or kind.ours
    if loosely or any(_SAID_OTHERWISE.search(str(response)) for response in responses):
        return [{"status": a["status"], "reason": a["body"][0].get("reason")} for a in responses]
    return list(responses)


_SAID_OTHERWISE = re.compile(
    "annot unmarshal|cannot restore|cannot convert|expected |not declared|generateName"
)


def _event(value: Any) -> Any:
    """Return a change in the form that both servers send: the real one marks a Pod that it is about
    to remove.
    """
    found = value.get("object") if isinstance(value, dict) else None
    if found is None:
        return value
    if value["type"] == "DELETED":
        return {"type": "DELETED", "object": {"metadata": {"name": _name(found)}}}
    held = found["metadata"].get("finalizers")
    return None if _is_going(found) and not held else value


def _is_going(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and metadata.get("deletionGracePeriodSeconds") == 0


def _name(value: dict[str, Any]) -> Any:
    metadata = value.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _sorted(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


def _merged(found: Any, changes: Any) -> Any:
    if not isinstance(found, dict) or not isinstance(changes, dict):
        return changes
    return {**found, **{key: _merged(found.get(key), item) for key, item in changes.items()}}
