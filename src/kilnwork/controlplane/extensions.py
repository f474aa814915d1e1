"""What a control plane serves from its start besides Kubernetes' own kinds.

Filled in by the code that makes a `cluster.ControlPlane`: kinds as CustomResourceDefinitions, as
any user would install them, with rules that a schema cannot state. Nothing here names a kind.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kilnwork.api import meta

Problem = tuple[str, str]
"""Dotted path of a field, and what is wrong with it, a sentence without subject."""


Warn = Callable[[meta.JsonObject, meta.JsonObject | None], Iterable[str]]
"""What is allowed but may surprise, in the new object; the old one is None on create."""


def no_warnings(*_: Any) -> tuple[()]:
    return ()


def _no_problems(*_: Any) -> tuple[()]:
    return ()


Sample = Callable[[meta.JsonObject], tuple[meta.JsonObject, str] | None]
"""Another object that an object of this kind will make, and the field that says so; or None."""


def _no_sample(_: meta.JsonObject) -> None:
    return None


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that is installed, with its admission. The functions get JSON and change nothing.

    `kind` may be left out of its objects, as of those of built-in kinds.
    """

    definition: meta.JsonObject
    """Its CustomResourceDefinition. Rules in CEL in it are not evaluated: `validate` has them."""
    validate: Callable[[meta.JsonObject], Iterable[Problem]] = _no_problems
    """What is wrong with an object whose schema is fulfilled."""
    validate_update: Callable[[meta.JsonObject, meta.JsonObject], Iterable[Problem]] = _no_problems
    """What may not change from the old object to the new one."""
    validate_status: Callable[[meta.JsonObject, meta.JsonObject], Iterable[Problem]] = _no_problems
    """What may not change in the status from the old object to the new one."""
    right: Callable[[meta.JsonObject], tuple[str, str]] | None = None
    """What one must have the right to `use` to create an object and to write its status: a resource
    of its group and namespace, as roles write it, and a name. None: nothing more."""
    warnings: Warn = no_warnings
    sample: Sample = _no_sample
    """What it makes: the server refuses what it would not create (`apiserver.samples`)."""
    pod_template: str = ""
    """A field of `spec` that must be a core/v1 PodTemplateSpec, though its schema is open."""

    @property
    def name(self) -> str:
        """`tasks.example.com`."""
        return str(self.definition["metadata"]["name"])


class Extensions(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds, and what belongs to them.

    `view`, `edit`: rules that these ClusterRoles get at each start. `server_names`: further
    names in the certificate of the server, for what is mounted beside Kubernetes.
    """

    kinds: tuple[Kind, ...] = ()
    view: tuple[meta.JsonObject, ...] = ()
    edit: tuple[meta.JsonObject, ...] = ()
    server_names: tuple[str, ...] = ()
