"""Controller that copies the rules of the selected ClusterRoles into each aggregated ClusterRole.

Used by `cluster`. Default roles are left alone, since they have rules of their own. Corresponds to
the clusterrole-aggregation-controller of Kubernetes. The copies are only for clients that read
roles: `authz` resolves the selected roles at each decision.
"""

from collections.abc import Sequence

from kilnwork.api import api_resources
from kilnwork.controlplane import controller_base, store_types
from kilnwork.controlplane.apiserver import (
    authz,
    default_roles,
    object_writer,
    statuses,
    write_types,
)

_ROLES = api_resources.CLUSTER_ROLES


class RoleAggregator(controller_base.StoreController[str]):
    """Controller of the aggregated ClusterRoles of one store."""

    def __init__(self, writer: object_writer.ObjectWriter) -> None:
        super().__init__("cluster roles", writer)
        self._authorizer = authz.Authorizer(writer.lookup)

    def start(self) -> None:
        """Queue all aggregated roles, then follow changes."""
        self._follow()
        self._enqueue_aggregated()
        self._start_worker()

    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        if any(change.key.resource == _ROLES.qualified for change in changes):
            self._enqueue_aggregated()

    def _enqueue_aggregated(self) -> None:
        for stored in self._store.select(_ROLES.qualified):
            # Searching is cheaper than decoding. `_reconcile` checks that it is a field.
            if b'"aggregationRule"' in stored.raw:
                self._enqueue(stored.key.name)

    async def _reconcile(self, name: str) -> None:
        target = write_types.target_of(_ROLES, None, name)
        stored = self._store.get(target.key)
        if stored is None:
            return
        role = stored.decode()
        if default_roles.is_default_role(role):
            return  # a default role has rules of its own besides the aggregated ones
        rules: list[authz.Rule] = []
        for rule in self._authorizer.aggregated_rules(role):
            if rule not in rules:
                rules.append(rule)
        if "aggregationRule" not in role or rules == (role.get("rules") or []):
            return
        try:
            await self._writer.change(
                target, lambda obj: obj | {"rules": rules}, write_types.WriteContext()
            )
        except statuses.StatusError as error:
            if error.code == 409:
                self._enqueue(name)
            elif error.code != 404:
                raise
