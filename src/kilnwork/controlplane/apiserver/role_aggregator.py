"""Controller that writes the rules of its parts into each aggregated ClusterRole, for readers.

Used by `cluster`. The clusterrole-aggregation-controller of Kubernetes. Decisions do not depend on
it: `authz` resolves the parts at each use.
"""

from collections.abc import Sequence

from kilnwork.api import resource
from kilnwork.controlplane import objects, store_controller
from kilnwork.controlplane.apiserver import authz, bootstrap, crud, statuses, writes

_ROLES = resource.CLUSTER_ROLES


class RoleAggregator(store_controller.StoreController[str]):
    """Controller of the aggregated ClusterRoles of one store."""

    def __init__(self, writer: crud.ObjectWriter) -> None:
        super().__init__("cluster roles", writer)
        self._authorizer = authz.Authorizer(writer.lookup)

    def start(self) -> None:
        """Queue all aggregated roles, then follow changes."""
        self._follow()
        self._look_at_all()
        self._begin()

    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        if any(change.key.resource == _ROLES.qualified for change in changes):
            self._look_at_all()

    def _look_at_all(self) -> None:
        for stored in self._store.select(_ROLES.qualified):
            if b'"aggregationRule"' in stored.raw:
                self._add(stored.key.name)

    async def _look(self, name: str) -> None:
        place = writes.target_of(_ROLES, None, name)
        stored = self._store.get(place.key)
        if stored is None:
            return
        role = stored.decode()
        if bootstrap.is_first(role):
            return  # a default role has rules of its own besides the aggregated ones
        rules: list[authz.Rule] = []
        for rule in self._authorizer.aggregated(role):
            if rule not in rules:
                rules.append(rule)
        if "aggregationRule" not in role or rules == (role.get("rules") or []):
            return
        try:
            await self._writer.change(
                place, lambda obj: obj | {"rules": rules}, writes.WriteContext()
            )
        except statuses.StatusError as error:
            if error.code == 409:
                self._add(name)
            elif error.code != 404:
                raise
