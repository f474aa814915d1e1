"""Lifecycle hooks, which run right after the start and right before the end of a container.

Used by `reconciler`. A `postStart` that fails ends the container. A `preStop` runs within the grace
period and delays SIGTERM until it has finished (k8s.io/kubernetes pkg/kubelet/lifecycle).
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp

from kilnwork.controlplane.node import errors, pod_types, probes
from kilnwork.controlplane.node import shim_container as containers

POST_START_S = 600.0
"""Maximum duration of a postStart; the kubelet has no limit."""

LEAST_S = 2.0
"""Grace period after a preStop that has used it up (the kubelet's minimum)."""


class Hooks(NamedTuple):
    """Runs lifecycle hooks. Each method returns why a hook failed, or "" if it succeeded."""

    run_inside: probes.RunInside
    probers: probes.Probers

    async def post_start(
        self, container: pod_types.Container, record: containers.ContainerRecord
    ) -> str:
        """Run the postStart hook of a container that has just started."""
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        return await self._run(hook, container, record, limit_s=POST_START_S)

    async def pre_stop(
        self, container: pod_types.Container, record: containers.ContainerRecord, *, grace_s: float
    ) -> str:
        """Run the preStop hook of a container that is about to be stopped."""
        hook = container.lifecycle.pre_stop if container.lifecycle is not None else None
        return await self._run(hook, container, record, limit_s=grace_s)

    async def _run(
        self,
        handler: pod_types.Handler | None,
        container: pod_types.Container,
        record: containers.ContainerRecord,
        *,
        limit_s: float,
    ) -> str:
        try:
            async with asyncio.timeout(limit_s):
                if handler is None:
                    return ""
                if handler.exec is not None:
                    return await self._command(handler.exec.command or (), record, limit_s)
                if handler.http_get is not None:
                    # Every response is a success, as with the kubelet (runHTTPHandler), which
                    # fails a hook only if its request fails.
                    await self.probers.http(container, handler.http_get)
                    return ""
                if handler.sleep is not None:
                    # The limit above applies: a preStop never outlasts the grace period (KEP-3960).
                    await asyncio.sleep(handler.sleep.seconds)
        except TimeoutError:
            return f"it did not end within {limit_s:g} s"
        except (OSError, aiohttp.ClientError, ValueError, errors.NodeError) as error:
            return str(error) or type(error).__name__
        return ""

    async def _command(
        self, argv: Sequence[str], record: containers.ContainerRecord, limit_s: float
    ) -> str:
        code, output = await self.run_inside(record.id, argv, limit_s)
        if code == 0:
            return ""
        return f"command exited with {code}: {output.decode(errors='replace').strip()}"


def has_pre_stop(container: pod_types.Container | None) -> bool:
    """Return whether the container has a hook to run before SIGTERM."""
    hooks = container.lifecycle if container is not None else None
    return hooks is not None and hooks.pre_stop is not None


def has_post_start(container: pod_types.Container) -> bool:
    """Return whether the container has a hook to run after its start."""
    return container.lifecycle is not None and container.lifecycle.post_start is not None
