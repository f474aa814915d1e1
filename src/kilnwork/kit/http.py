"""One HTTP exchange as values: what clients send and receive.

Used by both HTTP clients, the blocking one and the one for event loops (`kube.transport`), and by
what decides between requests without sending them (`endpoints.discovery`).
"""

from typing import Any, NamedTuple

import msgspec


class Response(NamedTuple):
    """A whole response, whatever its status."""

    status: int
    reason: str
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether what was requested was done (2xx)."""
        return 200 <= self.status < 300

    def document(self) -> dict[str, Any]:
        """The JSON object in the body; empty when it is something else."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}

    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace").strip()

    def message(self) -> str:
        """The sentence of problem details (RFC 9457) or of a metav1.Status, else the text."""
        document = self.document()
        said = document.get("detail") or document.get("message") or self.text()[:200]
        return str(said or f"{self.status} {self.reason}".rstrip())

    def is_kubernetes_status(self) -> bool:
        """Whether an API server itself says this, and not who is behind its proxy."""
        return self.document().get("kind") == "Status"
