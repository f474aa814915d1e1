"""HTTP requests and responses as values, for clients.

Used by both HTTP clients, the blocking one (`endpoints.manager_client`) and the one for event loops
(`kube.transport`), and by code that chooses requests without sending them
(`endpoints.discovery_protocol`).
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib import parse

import msgspec

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
BYTES = "application/octet-stream"

CONNECT_S = 10.0
"""Maximum seconds for connecting: a server that takes longer is down, or the address is wrong."""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request of a client.

    `path` is percent-encoded already; `headers` are added to the usual ones. `content_type`,
    `accept`: the headers; the blocking client omits empty ones. `body`: a Path is a file that is
    sent in pieces, by the blocking client only. `timeout_s`: limit of the whole exchange (for the
    blocking client: of each wait for the peer); `head_timeout_s`: limit until the response begins;
    None: no limit.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | Path | None = None
    content_type: str = JSON
    accept: str = JSON
    timeout_s: float | None = 30.0
    head_timeout_s: float | None = None
    headers: Mapping[str, str] | None = None

    def target(self) -> str:
        """Return the path and query as they are written in the request line."""
        if not self.query:
            return self.path
        return f"{self.path}?{parse.urlencode(self.query, quote_via=parse.quote)}"


class ClientResponse(NamedTuple):
    """A complete HTTP response.

    Header names are in lower case (blocking client), or `headers` ignores case
    (`kube.transport`).
    """

    status: int
    reason: str
    body: bytes
    headers: Mapping[str, str] = {}

    @property
    def ok(self) -> bool:
        """Whether the status code is 2xx."""
        return 200 <= self.status < 300

    def document(self) -> dict[str, Any]:
        """Return the JSON object in the body; an empty object if the body is anything else."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}

    def text(self) -> str:
        """Return the body as text, without white space at its ends."""
        return self.body.decode(errors="replace").strip()

    def message(self) -> str:
        """Return the message in problem details (RFC 9457) or in a metav1.Status; otherwise the
        body as text.
        """
        document = self.document()
        message = document.get("detail") or document.get("message") or self.text()[:200]
        return str(message or f"{self.status} {self.reason}".rstrip())

    def is_kubernetes_status(self) -> bool:
        """Return whether the body is a Status of the API server itself, not the response of a
        server behind its proxy.
        """
        return self.document().get("kind") == "Status"


def retry_after_s(value: str | None, *, now_s: float) -> float | None:
    """Return the delay in a Retry-After header, in either form (RFC 9110 §10.2.3); None if it is
    missing or malformed.

    `now_s`: wall clock.
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    utils = importlib.import_module("email.utils")  # by name: dates are rare, and it is large
    try:
        moment: float = utils.parsedate_to_datetime(value).timestamp()
    except ValueError:
        return None
    return max(0.0, moment - now_s)
