"""What the node remembers of one Pod: its directory, its containers, the status last written.

Used by `reconciler` and `container_files`. Mutable, and only theirs: what is decided from it is
in `lifecycle`, what is said about it in `statuses`.
"""

from dataclasses import dataclass, field
from typing import Any

from kilnwork.controlplane.node import container as containers
from kilnwork.controlplane.node import lifecycle, volumes
from kilnwork.kube import objects


@dataclass(slots=True)
class PodState:
    """One Pod, by uid. `key` is ("", uid) while its object has not been seen.

    `written`: the status that was written last, None before the first; `seen` and `version` are the
    resource versions of the object before and after that. `refusal`: why it can never run here.
    `renew_at` (monotonic): when the files of its volumes are to be written again, None while there
    are none. `waits`: tries in a row to start that came to nothing. `recalled`: what its status
    says of former starts has been taken over. `ignored_reported`: a kube event has named the fields
    that have no effect. `write_at` (monotonic): when delayed reports of starts are written.
    """

    uid: str
    key: objects.Key
    directory: volumes.PodDirectory
    views: dict[str, lifecycle.ContainerView] = field(default_factory=dict)
    written: dict[str, Any] | None = None
    seen: str = ""
    version: str = ""
    refusal: str = ""
    renew_at: float | None = None
    waits: int = 0
    recalled: bool = False
    ignored_reported: bool = False
    write_at: float | None = None

    @property
    def running(self) -> int:
        """How many of its containers run."""
        return sum(view.running for view in self.views.values())

    def view(self, name: str) -> lifecycle.ContainerView:
        return self.views.get(name, lifecycle.UNKNOWN)

    def change(self, name: str, **fields: Any) -> None:
        """Know something else of a container."""
        self.views[name] = self.view(name)._replace(**fields)

    def records(self) -> list[containers.ContainerRecord]:
        both = ((view.last, view.before) for view in self.views.values())
        return [record for pair in both for record in pair if record is not None]
