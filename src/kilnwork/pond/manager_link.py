"""The link of an agent to the manager: sends reports, receives orders; see `api.pond_messages`.

Used by `agent`, `deliveries` and `snapshot_creation`. The agent connects to the manager, never the
reverse, so a Pod needs no address that other processes can reach.
"""

from typing import Self
from urllib import parse

import msgspec

from kilnwork.api import manager_access, pond_messages
from kilnwork.kit import clock, http_types
from kilnwork.kube import config, errors, transport
from kilnwork.pond import settings

_SLACK_S = 15.0
"""Seconds by which a response may be later than the time that the request asked the manager to
wait.
"""


class ManagerLink:
    """A client for requests to the manager; an async context manager.

    All methods raise `KubeError` if there is no usable response.
    """

    def __init__(self, given: settings.AgentSettings, *, time: clock.Clock) -> None:
        quoted = (parse.quote(part, safe="") for part in (given.namespace, given.pond))
        self._base = f"{pond_messages.PREFIX}/{'/'.join(quoted)}"
        self._node = parse.quote(given.node, safe="")
        secure = given.manager.startswith("https:")
        self._transport = transport.Transport(
            config.Config(
                server=given.manager,
                ca_file=given.ca_file,
                token_file=given.token_file,
                tls_server_name=manager_access.SERVER_NAME if secure else None,
            ),
            user_agent="kiln-pond",
            time=time,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__(None, None, None)

    async def report(
        self, report: pond_messages.Report, *, wait_s: float = 0.0
    ) -> pond_messages.NodeOrder:
        """Send a report and return the manager's order for this node.

        Wait up to `wait_s` for an order that is newer than the order named in the report.
        """
        response = await self._transport.send(
            http_types.ClientRequest(
                method="POST",
                path=f"{self._base}/nodes/{self._node}",
                query={"wait": f"{wait_s:g}"},
                body=msgspec.json.encode(report),
                timeout_s=wait_s + _SLACK_S,
            )
        )
        try:
            return msgspec.json.decode(response.body, type=pond_messages.NodeOrder)
        except msgspec.MsgspecError as error:
            raise errors.Unavailable(0, "NoOrder", f"the manager sent no order: {error}") from error

    async def find_manifest(self, digest: str) -> bytes | None:
        """Return a manifest, or None if the manager does not have it."""
        try:
            response = await self._transport.send(self._manifest("GET", digest))
        except errors.NotFound:
            return None
        return response.body

    async def put_manifest(self, encoded: bytes, digest: str) -> None:
        """Store a manifest at the manager; may be called again for the same manifest."""
        await self._transport.send(self._manifest("PUT", digest, encoded))

    def _manifest(
        self, method: str, digest: str, body: bytes | None = None
    ) -> http_types.ClientRequest:
        return http_types.ClientRequest(
            method=method,
            path=f"{self._base}/manifests/{digest.removeprefix('sha256:')}",
            body=body,
            content_type=http_types.BYTES,
            timeout_s=120.0,
        )
