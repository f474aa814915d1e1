"""The Lease of a node, which shows that the node is alive and prevents a second one of its name.

Used by `registration`, `local_node` and `node_removal`. Like the kubelet's, the Lease is in
`kube-node-lease`, owned by the Node, and renewed every ten seconds (KEP-589,
https://kubernetes.io/docs/concepts/architecture/leases/). The kubelet's Lease names the node as its
holder. Ours names the process that runs the node, like client-go's leader election. The identity of
the process is that of its directory and machine, so that a process restarted on the directory has
the name again at once.
"""

import asyncio
import contextlib
import enum
from pathlib import Path
from typing import Any

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.node import errors as node_errors
from kilnwork.kit import clock, data_directories, ids
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, election, errors

NAMESPACE = "kube-node-lease"
RENEW_S = 10.0

LEASE_S = 80
"""Duration of the Lease in seconds. It is longer than containers of the holder can run without the
holder (the interval of renewals, then the shim's patience and grace), so that no Pod of the next
holder still runs elsewhere."""

SILENT_S = 15.0
"""Seconds without a renewal after which no process runs the node; renewals come every ten
seconds."""

CLOCKS_S = 60.0
"""Assumed maximum difference between the clocks of two machines, in seconds."""

_LOOK_S = 0.5
_IDENTITY = "node-identity"


class Standing(enum.Enum):
    """State of a node's name: which process holds it."""

    FREE = enum.auto()
    """No process holds the name, we do already, or the holder's Lease has expired, whatever the
    difference between the clocks is."""
    DOUBTFUL = enum.auto()
    """Another process holds the name. Its Lease has expired if the clocks of both machines
    agree."""
    HELD = enum.auto()
    """Another process holds the name and has renewed the Lease recently."""


def holder(directory: Path, machine: str, *, new_uid: ids.NewUid = ids.new_uid) -> str:
    """Return the identity of the node in this directory. It is created once and never changes."""
    path = directory / _IDENTITY
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    identity = election.identity(machine, new_uid=new_uid)
    data_directories.write_private(path, identity.encode() + b"\n", durable=True)
    return identity


def standing(lease: meta.JsonObject, me: str, *, now: float) -> Standing:
    """Return the state of the name according to the Lease. `now`: wall clock, seconds.

    A holder that is equal to the node's name is an earlier version of this program, and the name
    counts as free.
    """
    spec = lease.get("spec") or {}
    if _holder(lease) in {"", me, lease["metadata"]["name"]} or not spec.get("renewTime"):
        return Standing.FREE
    silent_s = _silent_s(lease, now) - (spec.get("leaseDurationSeconds") or LEASE_S)
    if silent_s > CLOCKS_S:
        return Standing.FREE
    return Standing.DOUBTFUL if silent_s > 0 else Standing.HELD


class NodeLease:
    """Lease of the node `name`, held by `me`. Call `claim`, then `renew`, finally `release`."""

    def __init__(self, kube: client.Client, name: str, me: str, *, now: clock.Clock) -> None:
        self._client = kube
        self._name = name
        self._me = me
        self._now = now
        self._version = ""

    async def claim(self, *, seize: bool = False) -> None:
        """Become the holder of the name; with `seize`, even if another process holds it.

        Raises ConfigurationError that names the present holder.
        """
        while True:
            lease = await self._get()
            if lease is not None and not seize:
                await self._check(lease)
            with contextlib.suppress(errors.Conflict, errors.AlreadyExists, errors.NotFound):
                # A conflict means that another process was faster: check the holder again.
                await self._write(lease, owner=None)
                return

    async def renew(self, *, owner: str) -> None:
        """Renew the Lease. `owner`: uid of the Node. Raises NameTaken and KubeError."""
        last_written = {"metadata": {"resourceVersion": self._version}} if self._version else None
        try:
            await self._write(last_written, owner=owner)
        except errors.NotFound:
            # The Lease is deleted with the Node that owns it.
            await self._write(None, owner=owner)
        except (errors.AlreadyExists, errors.Conflict):
            lease = await self._get()
            # The name is also free if we hold it: the response to our last write was lost.
            if lease is not None and standing(lease, self._me, now=self._now.wall()) is not (
                Standing.FREE
            ):
                raise node_errors.NameTaken(_described(lease, self._now.wall())) from None
            await self._write(lease, owner=owner)

    async def release(self) -> None:
        """Release the name. Call it when no container of this node runs any more."""
        if not self._version:
            return
        with contextlib.suppress(errors.Conflict, errors.NotFound):
            try:
                await self._release(self._version)
            except errors.Conflict:
                # A renewal may have succeeded although its response was not awaited.
                lease = await self._get()
                if lease is not None and _holder(lease) == self._me:
                    await self._release(lease["metadata"]["resourceVersion"])

    async def _release(self, version: str) -> None:
        body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
        await self._client.merge_patch(api_resources.LEASES, self._name, body, NAMESPACE)

    async def _get(self) -> meta.JsonObject | None:
        try:
            return await self._client.get(api_resources.LEASES, self._name, NAMESPACE)
        except errors.NotFound:
            return None

    async def _check(self, lease: meta.JsonObject) -> None:
        state = standing(lease, self._me, now=self._now.wall())
        if state is Standing.HELD or (state is Standing.DOUBTFUL and await self._is_renewed(lease)):
            raise kit_errors.ConfigurationError(
                f"node {self._name} is run by {_described(lease, self._now.wall())}: stop it there,"
                f" or choose another --name; a name is free {LEASE_S} s after its last renewal"
            )

    async def _is_renewed(self, lease: meta.JsonObject) -> bool:
        """Return whether the holder renews the Lease while we watch.

        The result does not depend on the clock of the other machine.
        """
        began = self._now.monotonic()
        while self._now.monotonic() - began < SILENT_S:
            await asyncio.sleep(_LOOK_S)
            current = await self._get()
            if current is None:
                return False
            if current["spec"].get("renewTime") != lease["spec"]["renewTime"]:
                return standing(current, self._me, now=self._now.wall()) is not Standing.FREE
        return False

    async def _write(self, seen: meta.JsonObject | None, *, owner: str | None) -> None:
        """Create the Lease, or replace its version `seen` if that is not None.

        An update fails if another process has written meanwhile.
        """
        metadata: dict[str, Any] = {}
        if owner:
            about = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": owner}
            metadata["ownerReferences"] = [about]
        spec = {
            "holderIdentity": self._me,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": clock.rfc3339_micro(self._now.wall()),
        }
        if seen is None:
            kind = {
                "apiVersion": api_resources.LEASES.api_version,
                "kind": api_resources.LEASES.kind,
            }
            metadata |= {"name": self._name, "namespace": NAMESPACE}
            lease = {**kind, "metadata": metadata, "spec": spec}
            done = await self._client.create(api_resources.LEASES, lease, NAMESPACE)
        else:
            # The patch fails if another process has written since.
            metadata["resourceVersion"] = seen["metadata"]["resourceVersion"]
            body = {"metadata": metadata, "spec": spec}
            done = await self._client.merge_patch(api_resources.LEASES, self._name, body, NAMESPACE)
        self._version = done["metadata"]["resourceVersion"]


def _holder(lease: meta.JsonObject) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _silent_s(lease: meta.JsonObject, now: float) -> float:
    return now - clock.parse_rfc3339(lease["spec"]["renewTime"])


def _described(lease: meta.JsonObject, now: float) -> str:
    renewed = lease["spec"]["renewTime"]
    return (
        f"{_holder(lease)}, whose Lease was renewed {_silent_s(lease, now):.0f} s ago ({renewed})"
    )
