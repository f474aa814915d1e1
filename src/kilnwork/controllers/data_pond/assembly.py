"""Assembly of the DataPond controller: its queue, its reflectors, and the verifier of agents.

Used by `controllers.assembly`, which has the caches and starts everything.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kilnwork.api import api_resources, data_pond, kinds, node
from kilnwork.controllers import reconciler_context, worker_pods
from kilnwork.controllers.data_pond import agent_verifier, ledger, pods, reconciler
from kilnwork.kube import controller, queue, reflector

WORKERS = 4
"""Number of DataPonds reconciled concurrently."""

MODULE = "kilnwork.pond"


class Ponds:
    """The assembled parts of the DataPond controller. `new_token`: returns a new secret."""

    def __init__(
        self,
        context: reconciler_context.ReconcilerContext,
        settings: worker_pods.WorkerPodSettings,
        *,
        known: ledger.Ledger,
        new_token: Callable[[], str],
    ) -> None:
        self._kube, self._caches = context.kube, context.caches
        self._sees_nodes = settings.sees_nodes
        self._queue = queue.WorkQueue(time=context.time)
        self._reconciler = reconciler.Reconciler(
            context,
            self._queue,
            settings=_settings(settings),
            known=known,
            new_token=new_token,
        )
        self.part_changed = self._reconciler.part_changed
        """The callback for reflectors of Pods and Secrets."""

    def controller(self) -> controller.Controller:
        """Return the control loop of DataPonds."""
        return controller.Controller(
            "datapond", self._reconciler.reconcile, self._queue, workers=WORKERS
        )

    def reflectors(self, namespace: str | None) -> list[reflector.Reflector[Any]]:
        """Return the reflectors that fill the caches for one namespace, or for all namespaces if it
        is None.
        """
        scope = reflector.Scope(namespace=namespace)
        return [
            reflector.Reflector(
                self._kube,
                kinds.DATA_PONDS,
                data_pond.DataPond,
                self._caches.ponds,
                self._reconciler.pond_changed,
                scope=scope,
            )
        ]

    def cluster_reflectors(self) -> list[reflector.Reflector[Any]]:
        """Return the reflector of Nodes, which are cluster-scoped, if the manager may read them."""
        if not self._sees_nodes:
            return []
        return [
            reflector.Reflector(
                self._kube,
                api_resources.NODES,
                node.Node,
                self._caches.nodes,
                self._reconciler.node_changed,
            )
        ]

    def verifier(
        self, reflectors: Iterable[reflector.Reflector[Any]]
    ) -> agent_verifier.PondVerifier:
        """Return the verifier of agents; it waits until `reflectors` have listed their objects."""
        asked = (kinds.DATA_PONDS, api_resources.SECRETS)
        synced: Sequence[asyncio.Event] = [r.synced for r in reflectors if r.resource in asked]
        return agent_verifier.PondVerifier(self._caches, synced=synced)


def _settings(settings: worker_pods.WorkerPodSettings) -> pods.PondPodSettings:
    """Return the settings of agents' Pods, derived from those of workers."""
    return pods.PondPodSettings(
        manager=settings.manager,
        ca=settings.manager_ca,
        command=(settings.worker_command[0], "-m", MODULE),
        image=settings.worker_image,
        sees_nodes=settings.sees_nodes,
        root=settings.ponds or pods.DEFAULT_ROOT,
        local=settings.ponds is not None,
    )
