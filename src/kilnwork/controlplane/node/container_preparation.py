"""Files that a container needs on disk before it starts, and their refresh while it runs.

Used by `reconciler`. This module fetches what `container_plan` and `volume_sources` want (objects,
tokens of the Pod's service account), has `volumes` write the files, and returns the start request
for the shim. Files of Secrets, ConfigMaps and tokens are written again once a minute, or when a
token must be renewed, as by the kubelet; all containers of a Pod share them.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.node import (
    account_tokens,
    container_input_types,
    container_plan,
    errors,
    pod_state,
    pod_types,
    shim_container,
    termination_messages,
    volume_sources,
    volumes,
)
from kilnwork.kit import clock
from kilnwork.kube import client
from kilnwork.kube import errors as kube_errors

REFRESH_S = 60.0
"""Seconds between refreshes of the files of Secrets and ConfigMaps (the kubelet's sync period)."""

AGAIN_S = 30.0
"""Delay after a failed refresh."""

_ROOT_CA = "kube-root-ca.crt"
"""The ConfigMap in every Pod's account volume; it does not change during a cluster's lifetime."""

_NEVER_S = 365 * 86_400.0
_RESOURCES = {"Secret": api_resources.SECRETS, "ConfigMap": api_resources.CONFIG_MAPS}


class FilePreparer(NamedTuple):
    """Prepares the files of containers, with the clients and facts that this needs."""

    kube: client.Client
    accounts: account_tokens.AccountTokens
    facts: container_input_types.NodeFacts
    now: clock.Clock

    async def order(
        self,
        pod: pod_types.Pod,
        wanted_container: pod_types.Container,
        known: pod_state.PodState,
        *,
        number: int,
    ) -> shim_container.StartRequest:
        """Prepare everything that the container needs, and return the request to start it.

        Raises `InputsNotReady`, `Unsupported`, OSError, KubeError.
        """
        if known.renew_at is None or self.now.monotonic() >= known.renew_at:
            await self.fill(pod, known)
        inputs = await self._find(container_plan.wanted(wanted_container), pod.metadata.namespace)
        root = known.directory.mount_point(wanted_container.name)
        if isinstance(wanted_container, pod_types.EphemeralContainer):
            container_plan.check_ephemeral(pod, wanted_container)
        done = container_plan.make(pod, wanted_container, found=inputs, facts=self.facts, root=root)
        known.directory.link(wanted_container.name, done.links)
        termination_messages.make_file(
            known.directory.root(wanted_container.name), wanted_container
        )
        return shim_container.StartRequest(
            id=f"{known.uid}/{wanted_container.name}/{number}",
            argv=done.argv,
            env=done.env,
            cwd=done.cwd,
            directory=str(known.directory.container(wanted_container.name)),
            stdin=wanted_container.stdin,
            stdin_once=wanted_container.stdin_once,
            tty=wanted_container.tty,
            no_new_privileges=done.dropped_privileges.no_new_privileges,
            dropped=done.dropped_privileges.dropped,
        )

    async def fill(self, pod: pod_types.Pod, known: pod_state.PodState) -> None:
        """Write the files of all volumes in their present state. Raises the errors of `order`."""
        inputs = await self._find(volume_sources.wanted(pod), pod.metadata.namespace)
        tokens, soonest_s = {}, REFRESH_S if _changes(pod) else _NEVER_S
        for want in dict.fromkeys(volume_sources.tokens(pod)):
            tokens[want], renew_s = await self.accounts.token(pod, want)
            soonest_s = min(soonest_s, renew_s)
        if self._gives_account(pod):
            soonest_s = min(soonest_s, await self.accounts.write(pod, known.directory))
        context = volume_sources.VolumeContext(pod, inputs, tokens, self.facts)
        known.directory.fill(volume_sources.volume(v, context) for v in pod.spec.volumes or ())
        for volume in pod.spec.volumes or ():
            if (host := volume_sources.host_path(volume)) is not None:
                volumes.check_host(str(volume["name"]), host)
        # Set last, so that the refresh is repeated after a failure above.
        known.renew_at = self.now.monotonic() + soonest_s

    def renews(self, pod: pod_types.Pod) -> bool:
        """Return whether files of the Pod's volumes must be written again while the Pod runs."""
        return (
            _changes(pod)
            or self._gives_account(pod)
            or next(volume_sources.tokens(pod), None) is not None
        )

    def _gives_account(self, pod: pod_types.Pod) -> bool:
        return container_plan.uses_account(pod, mounts_accounts=self.facts.mounts_accounts)

    async def _find(
        self, wants: Iterable[container_input_types.ObjectWant], namespace: str
    ) -> container_input_types.Found:
        keys = list(dict.fromkeys((want.kind, want.name) for want in wants))
        got = await asyncio.gather(*(self._get(kind, name, namespace) for kind, name in keys))
        return dict(zip(keys, got, strict=True))

    async def _get(
        self, kind: container_input_types.Kind, name: str, namespace: str
    ) -> meta.JsonObject | None:
        try:
            return await self.kube.get(_RESOURCES[kind], name, namespace)
        # An object whose name is invalid cannot exist.
        except (kube_errors.NotFound, kube_errors.Invalid):
            return None
        except kube_errors.Forbidden as error:  # the Node authorizer sees a new Pod with a delay
            raise errors.InputsNotReady(str(error)) from error


def _changes(pod: pod_types.Pod) -> bool:
    return any(want.name != _ROOT_CA for want in volume_sources.wanted(pod))
