"""Settings of an installation. The options of `kiln install` validate the values."""

from dataclasses import dataclass, field
from typing import Literal

from kilnwork import version
from kilnwork.api import manager_access

Part = Literal["namespace", "crds", "rights", "drivers", "manager"]
PARTS: tuple[Part, ...] = ("namespace", "crds", "rights", "drivers", "manager")

LogLevel = Literal["warning", "info", "debug"]
LOG_LEVELS: tuple[LogLevel, ...] = ("warning", "info", "debug")

Storage = Literal["pvc", "emptyDir", "hostPath"]
STORAGES: tuple[Storage, ...] = ("pvc", "emptyDir", "hostPath")

USER = 65532
"""User id of distroless images, which no distribution uses."""

IMAGE = f"localhost/kilnwork:{version.__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Volume that holds the manager's journal, blobs and logs.

    `class_name`: the StorageClass; None selects the cluster's default.
    """

    storage: Storage = "pvc"
    size: str = "10Gi"
    class_name: str | None = None
    host_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Toleration of a Pod (core/v1).

    An empty `value` tolerates any value, an empty `effect` every effect.
    """

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Placement of the manager: its nodes, and the user of its process.

    `user`: user and group id of the process. None: those of the node, since a virtual node runs all
    Pods as its own user.
    """

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str | None = None
    user: int | None = USER


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedObjects:
    """The objects that tasks may make.

    Contains their `kinds`, and whether tasks may make them with the rights of ServiceAccounts whose
    annotation permits it.
    """

    kinds: tuple[str, ...] = ()
    impersonate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSettings:
    """All settings of an installation; see the options of `kiln install`.

    `drivers_in`: namespaces that get a `kilnwork-driver`. `only_in`: the served namespaces, empty
    for all. `http_executors`: number of Pods that send HTTP requests. `manager_arguments`: further
    arguments of `kiln manager`. `ponds`: whether the manager serves DataPonds.
    """

    namespace: str = manager_access.NAMESPACE
    image: str = IMAGE
    worker_image: str | None = None
    worker_python: str = "python3"
    pull_policy: str | None = None
    pull_secrets: tuple[str, ...] = ()
    advertise: str | None = None
    volume: Volume = Volume()
    place: Placement = Placement()
    requests: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    log_json: bool = True
    log_level: LogLevel = "info"
    manager_arguments: tuple[str, ...] = ()
    drivers_in: tuple[str, ...] = ()
    only_in: tuple[str, ...] = ()
    http_executors: int = 0
    objects: AllowedObjects = AllowedObjects()
    ponds: bool = False
    parts: tuple[Part, ...] = PARTS
