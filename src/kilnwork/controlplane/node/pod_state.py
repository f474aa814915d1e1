"""State of a Pod in the node's memory: its directory, containers, and last written status.

Used and changed by `reconciler`, `container_preparation` and `pod_reports`. `pod_decisions` decides
from the state what to do next, and `statuses` computes the status from it.
"""

from dataclasses import dataclass, field
from typing import Any

from kilnwork.controlplane.node import pod_decisions, volumes
from kilnwork.controlplane.node import shim_container as containers
from kilnwork.kube import objects


@dataclass(slots=True)
class PodState:
    """State that the node keeps of one Pod, identified by its uid."""

    uid: str
    key: objects.Key
    """Key of the Pod object; ("", uid) until the object has been seen."""
    directory: volumes.PodDirectory
    views: dict[str, pod_decisions.ContainerView] = field(default_factory=dict)
    written: dict[str, Any] | None = None
    """The status that was written last; None before the first write."""
    seen: str = ""
    """resourceVersion of the object before `written` was written."""
    version: str = ""
    """resourceVersion of the object after `written` was written."""
    refusal: str = ""
    """Why the Pod can never run here; empty if it can."""
    renew_at: float | None = None
    """Time to refresh the files of the volumes (monotonic); None while there are no files."""
    waits: int = 0
    """Number of failed attempts in a row to start a container."""
    recalled: bool = False
    """Whether earlier starts were taken over from the Pod's status."""
    ignored_reported: bool = False
    """Whether a kube event has named the fields that have no effect."""
    write_at: float | None = None
    """Time at which a delayed status is written (monotonic); None if no status is delayed."""

    @property
    def running(self) -> int:
        """Return the number of running containers."""
        return sum(view.running for view in self.views.values())

    def view(self, name: str) -> pod_decisions.ContainerView:
        return self.views.get(name, pod_decisions.UNKNOWN)

    def change(self, name: str, **fields: Any) -> None:
        """Replace fields of the view of a container."""
        self.views[name] = self.view(name)._replace(**fields)

    def records(self) -> list[containers.ContainerRecord]:
        both = ((view.last, view.before) for view in self.views.values())
        return [record for pair in both for record in pair if record is not None]
