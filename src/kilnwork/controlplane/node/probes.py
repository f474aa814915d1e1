"""Startup, readiness and liveness probes of containers, by command, HTTP or TCP.

Used by `reconciler`, which calls `watch` for a running container and `drop` when it ends or is
stopped, and by `hooks` for HTTP requests. Results are reported through `on_change`. Times,
thresholds and messages are the kubelet's (k8s.io/kubernetes pkg/kubelet/prober and pkg/probe).
Probes reach a container at the Pod's address, since the containers of this node share the machine's
network.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import aiohttp
import yarl

from kilnwork.controlplane.node import errors, pod_types
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kit import clock, coroutines
from kilnwork.version import __version__

RunInside = Callable[[str, Sequence[str], float], Awaitable[tuple[int, bytes]]]
"""(container id, command, seconds) → exit code and output. Raises TimeoutError, NodeError."""

_SHOWN = 1024
_MAX_REQUESTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_USER_AGENT = f"kube-probe/kiln-{__version__}"


class ProbeFinding(NamedTuple):
    """A changed result of a probe, a failure to report, or a warning."""

    kind: str
    healthy: bool | None
    """None if the result has not changed and the message is only reported."""
    message: str = ""
    """Description of a failure, or the warning of a probe that has passed."""
    reason: str = "Unhealthy"
    """Reason of the kube event with the message."""


OnChange = Callable[[containers.ContainerRecord, ProbeFinding], None]


class Probers:
    """Runs the probes of all containers of a node."""

    def __init__(
        self, run_inside: RunInside, on_change: OnChange, *, address: str, now: clock.Clock
    ) -> None:
        self._run_inside = run_inside
        self._on_change = on_change
        self._address = address
        self._now = now
        self._background = coroutines.BackgroundWork("probes")
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def watch(self, container: pod_types.Container, record: containers.ContainerRecord) -> None:
        """Start to probe a running container, unless it is already probed."""
        probes = (container.startup_probe, container.readiness_probe, container.liveness_probe)
        if record.id not in self._watched and any(probes):
            self._watched[record.id] = self._background.start(
                f"container {record.id}", self._probe(container, record)
            )

    def drop(self, container_id: str) -> None:
        watched = self._watched.pop(container_id, None)
        if watched is not None:
            watched.cancel()

    async def stop(self) -> None:
        """Stop all probes."""
        await self._background.stop()
        if self._session is not None:
            await self._session.close()

    async def _probe(
        self, container: pod_types.Container, record: containers.ContainerRecord
    ) -> None:
        if container.startup_probe is not None:
            # The other probes begin when the startup probe has succeeded (KEP-950).
            works = await self._loop("Startup", container, container.startup_probe, record)
            if not works:
                return
        kinds = {"Readiness": container.readiness_probe, "Liveness": container.liveness_probe}
        async with asyncio.TaskGroup() as group:
            for kind, probe in kinds.items():
                if probe is not None:
                    group.create_task(self._loop(kind, container, probe, record))

    async def _loop(
        self,
        kind: str,
        container: pod_types.Container,
        probe: pod_types.Probe,
        record: containers.ContainerRecord,
    ) -> bool:
        """Probe until cancelled or until the probe has its final result. Return that result.

        A startup probe ends with its first result, a liveness probe when it fails; a readiness
        probe does not end.
        """
        check = functools.partial(self._check, container, probe, record)
        verdict = ProbeResult(probe, healthy=kind == "Liveness")
        begins_at = record.started_at + probe.initial_delay_seconds
        await asyncio.sleep(max(0.0, begins_at - self._now.wall()))
        while True:
            passed, message = await check()
            changed = verdict.take(passed=passed)
            if not passed:
                text = f"{kind} probe failed: {message}"
                self._on_change(record, ProbeFinding(kind, changed, text))
            elif message:
                text = f"{kind} probe warning: {message}"
                self._on_change(record, ProbeFinding(kind, changed, text, "ProbeWarning"))
            elif changed is not None:
                self._on_change(record, ProbeFinding(kind, changed))
            if (kind, changed) in (("Startup", True), ("Startup", False), ("Liveness", False)):
                return bool(changed)
            await asyncio.sleep(max(1, probe.period_seconds))

    async def _check(
        self,
        container: pod_types.Container,
        probe: pod_types.Probe,
        record: containers.ContainerRecord,
    ) -> tuple[bool, str]:
        limit_s = float(max(1, probe.timeout_seconds))
        try:
            async with asyncio.timeout(limit_s):
                if probe.exec is not None:
                    return await self._exec(probe.exec, record, limit_s)
                if probe.http_get is not None:
                    return await self.http(container, probe.http_get)
                if probe.tcp_socket is not None:
                    return await self._tcp(container, probe.tcp_socket)
        except TimeoutError:
            return False, f"command timed out after {limit_s:g}s" if probe.exec else "timeout"
        except (OSError, aiohttp.ClientError, ValueError, errors.NodeError) as error:
            return False, str(error) or type(error).__name__
        return True, ""

    async def _exec(
        self, action: pod_types.ExecAction, record: containers.ContainerRecord, limit_s: float
    ) -> tuple[bool, str]:
        code, output = await self._run_inside(record.id, action.command or (), limit_s)
        if code == 0:
            return True, ""
        return False, output[:_SHOWN].decode(errors="replace").strip()

    async def http(
        self, container: pod_types.Container, action: pod_types.HttpAction
    ) -> tuple[bool, str]:
        """Send the GET request of a probe or hook. Return whether it succeeded, and why not or else
        a warning.

        Redirects to the same host are followed, and certificates are not verified. Raises OSError
        or aiohttp.ClientError for a request without a response, NodeError for too many redirects,
        and ValueError for an unknown port or an invalid URL.
        """
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=False, force_close=True, limit=0)
            # Proxies of our environment are ignored: a probe must reach its container directly.
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        headers = {"User-Agent": _USER_AGENT, "Accept": "*/*"}
        headers |= {header.name: header.value for header in action.http_headers or ()}
        url = self._url(container, action)
        for _ in range(_MAX_REQUESTS):
            async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                location = response.headers.get("Location", "")
                followed = response.status in _REDIRECTS and location != ""
                target = url.join(yarl.URL(location)) if followed else None
                # Another host would be probed in place of the container (RedirectChecker).
                if target is None or target.host != url.host:
                    return await _outcome(response)
            url = target
        raise errors.NodeError(f"stopped after {_MAX_REQUESTS} redirects")

    def _url(self, container: pod_types.Container, action: pod_types.HttpAction) -> yarl.URL:
        host, port = action.host or self._address, port_number(container, action.port)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        path = action.path or "/"
        path = path if path.startswith("/") else f"/{path}"
        return yarl.URL(f"{action.scheme.lower()}://{target}{path}")

    async def _tcp(
        self, container: pod_types.Container, action: pod_types.TcpAction
    ) -> tuple[bool, str]:
        host = action.host or self._address
        _, writer = await asyncio.open_connection(host, port_number(container, action.port))
        writer.close()
        return True, ""


async def _outcome(response: aiohttp.ClientResponse) -> tuple[bool, str]:
    if 300 <= response.status < 400:
        body = (await response.content.read(_SHOWN)).decode(errors="replace")
        return True, f"Probe terminated redirects, Response body: {body}"
    good = 200 <= response.status < 300
    return good, "" if good else f"HTTP probe failed with statuscode: {response.status}"


class ProbeResult:
    """Result of one probe, computed from the outcomes so far.

    `healthy` is the result assumed before the first outcome.
    """

    def __init__(self, probe: pod_types.Probe, *, healthy: bool) -> None:
        self._success = max(1, probe.success_threshold)
        self._failure = max(1, probe.failure_threshold)
        # None instead of False, so that a first failure counts as a change too.
        self._healthy: bool | None = healthy or None
        self._last: bool | None = None
        self._row = 0

    def take(self, *, passed: bool) -> bool | None:
        """Count an outcome. Return the new result if it has changed, else None."""
        self._row = self._row + 1 if passed == self._last else 1
        self._last = passed
        if self._row < (self._success if passed else self._failure) or passed == self._healthy:
            return None
        self._healthy = passed
        return passed


def port_number(container: pod_types.Container, port: int | str) -> int:
    """Return the number of a port that may be given by name. Raises ValueError."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for named in container.ports or ():
        if named.name == port:
            return named.container_port
    raise ValueError(f"invalid port number: couldn't find port: {port}")
