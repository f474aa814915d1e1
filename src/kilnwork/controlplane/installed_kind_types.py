"""Extensions of a control plane: what it serves from its start besides Kubernetes' built-in kinds.

The code that creates a `cluster.ControlPlane` fills these in: kinds as CustomResourceDefinitions,
as any user could install them, with validation rules that a schema cannot express. This module
names no kind.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kilnwork.api import meta

Problem = tuple[str, str]
"""Dotted path of a field, and the error text without a subject: `must not be empty`."""


Warn = Callable[[meta.JsonObject, meta.JsonObject | None], Iterable[str]]
"""Returns warnings about the new object (first argument); the old object is None on create."""


def no_warnings(*_: Any) -> tuple[()]:
    return ()


def _no_problems(*_: Any) -> tuple[()]:
    return ()


Sample = Callable[[meta.JsonObject], tuple[meta.JsonObject, str] | None]
"""Returns an object that the kind's controller will create for the given object.

The second value is the path of the field in the given object that describes the created one. None
means that there is no object to check.
"""


def _no_sample(_: meta.JsonObject) -> None:
    return None


class InstalledKind(msgspec.Struct, frozen=True, kw_only=True):
    """Kind that comes with the control plane, with its admission rules.

    The functions receive JSON and must not change it. Objects of the kind may omit `kind`, as those
    of built-in kinds may.
    """

    definition: meta.JsonObject
    """Its CustomResourceDefinition. CEL rules in it are not evaluated: `validate` replaces them."""
    validate: Callable[[meta.JsonObject], Iterable[Problem]] = _no_problems
    """Returns the problems of an object that conforms to the schema."""
    validate_update: Callable[[meta.JsonObject, meta.JsonObject], Iterable[Problem]] = _no_problems
    """Returns the forbidden changes from the old object to the new one."""
    validate_status: Callable[[meta.JsonObject, meta.JsonObject], Iterable[Problem]] = _no_problems
    """Returns the forbidden changes of the status from the old object to the new one."""
    right: Callable[[meta.JsonObject], tuple[str, str]] | None = None
    """Returns (resource, name): to create an object or write its status, a user must be allowed to
    `use` that resource, which is written as in roles and has the object's API group and namespace.
    None: no check."""
    warnings: Warn = no_warnings
    sample: Sample = _no_sample
    """Returns an object that the kind's controller will create for a given object. The server
    rejects the given object if it would reject the created one (`apiserver.child_object_check`)."""
    pod_template: str = ""
    """Field of `spec` that must be a core/v1 PodTemplateSpec, though its schema is open."""

    @property
    def name(self) -> str:
        """Return the name of the kind's definition, such as `tasks.example.com`."""
        return str(self.definition["metadata"]["name"])


class Extensions(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds that come with the control plane, with everything that the server needs for them."""

    kinds: tuple[InstalledKind, ...] = ()
    view: tuple[meta.JsonObject, ...] = ()
    """RBAC rules that are added to the ClusterRole `view` at each start, unless it has them."""
    edit: tuple[meta.JsonObject, ...] = ()
    """RBAC rules that are added to the ClusterRole `edit` at each start, unless it has them."""
    server_names: tuple[str, ...] = ()
    """Further DNS names in the server's certificate, for apps mounted beside Kubernetes."""
