"""Server-side apply, what goes with something that its owner names no more: defaults that no
manager owns go with what they are in, what others own stays, and keeps that around it."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import kube_servers, waiting
from support.kube_servers import APPLY, CRDS

GROUP = "removal.kilnwork.dev"
_TEXT = {"type": "string"}
_PROBE = {
    "type": "object",
    "properties": {
        "path": _TEXT,
        "port": {"type": "integer", "default": 80},
        "scheme": {"type": "string", "default": "HTTP"},
        "inner": {"type": "object", "properties": {"x": _TEXT, "y": {**_TEXT, "default": "y"}}},
    },
}
_ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": _TEXT, "size": {"type": "integer", "default": 1}, "note": _TEXT},
}
_SPEC = {
    "type": "object",
    "properties": {
        "keep": _TEXT,
        "color": {**_TEXT, "default": "red"},
        "probe": _PROBE,
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _ITEM,
        },
        "plain": {"type": "array", "items": _ITEM},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        "named": {"type": "object", "additionalProperties": _PROBE},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"kits.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "kits", "singular": "kit", "kind": "Kit", "listKind": "KitList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC}}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def kits(admin: kube_servers.Http) -> Iterator[None]:
    """Until the kind is served."""
    admin.post(CRDS, _DEFINITION).ok()

    def served() -> bool:
        found = admin.patch(
            f"/apis/{GROUP}/v1/namespaces/default/kits/k",
            _kit({}),
            form=APPLY,
            fieldManager="probe",
            dryRun="All",
        )
        return found.status == 201

    waiting.wait_until(served, what="kits are served")
    yield
    admin.delete(f"{CRDS}/kits.{GROUP}")


def _kit(spec: dict[str, Any] | None) -> dict[str, Any]:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Kit", "metadata": {"name": "k"}}
    return body if spec is None else {**body, "spec": spec}


ITEM_A, ITEM_B = {"name": "a"}, {"name": "b"}
_Steps = list[tuple[str, dict[str, Any] | None]]
"""Who (`up`: by a merge patch, else by apply) and what of the spec."""

STORIES: dict[str, _Steps] = {
    "struct": [("one", {"keep": "", "probe": {"path": "/"}}), ("one", {"keep": ""})],
    "field of a struct": [
        ("one", {"probe": {"path": "/", "inner": {"x": "1"}}}),
        ("one", {"probe": {"path": "/"}}),
    ],
    "only field of a struct": [("one", {"probe": {"inner": {"x": "1"}}}), ("one", {"probe": {}})],
    "struct within": [("one", {"probe": {"inner": {"x": "1"}}}), ("one", {"keep": ""})],
    "all": [("one", {"keep": "1", "probe": {"path": "/"}}), ("one", None)],
    "item": [("one", {"items": [ITEM_A, ITEM_B]}), ("one", {"items": [ITEM_B]})],
    "items": [("one", {"items": [ITEM_A, ITEM_B]}), ("one", {"keep": ""})],
    "no items": [("one", {"items": [ITEM_A]}), ("one", {"items": []})],
    "atomic items": [("one", {"plain": [ITEM_A]}), ("one", {"keep": ""})],
    "tags": [("one", {"tags": ["a", "b"]}), ("two", {"tags": ["b", "c"]}), ("one", {})],
    "named": [("one", {"named": {"k": {"path": "/"}, "l": {}}}), ("one", {"named": {"l": {}}})],
    "all named": [("one", {"named": {"k": {"path": "/"}}}), ("one", {"keep": ""})],
    "anything": [("one", {"any": {"a": {"b": 1}}}), ("up", {"any": {"a": {"c": 2}}}), ("one", {})],
    "anything at a leaf": [
        ("one", {"any": {"a": {"b": 1}}}),
        ("up", {"any": {"a": {"b": 2}}}),
        ("one", {}),
    ],
    "struct with an update": [
        ("one", {"probe": {"path": "/"}}),
        ("up", {"probe": {"port": 81}}),
        ("one", {"keep": ""}),
    ],
    "item with an update": [
        ("one", {"items": [ITEM_A]}),
        ("up", {"items": [{"name": "a", "size": 5}]}),
        ("one", {"keep": ""}),
    ],
    "item with an update of many": [
        ("one", {"items": [ITEM_A, ITEM_B]}),
        ("up", {"items": [{"name": "a", "size": 5}, ITEM_B]}),
        ("one", {"items": [ITEM_B]}),
    ],
    "named with an update": [
        ("one", {"named": {"k": {"path": "/"}}}),
        ("up", {"named": {"k": {"port": 81}}}),
        ("one", {"keep": ""}),
    ],
    "named with more": [
        ("one", {"named": {"k": {"path": "/"}}}),
        ("up", {"named": {"l": {"path": "/"}}}),
        ("one", {"keep": ""}),
    ],
    "item of two": [
        ("one", {"items": [ITEM_A]}),
        ("two", {"items": [{"name": "a", "note": "n"}]}),
        ("one", {"keep": ""}),
    ],
    "struct of two": [
        ("one", {"probe": {"path": "/", "inner": {"x": "1"}}}),
        ("two", {"probe": {"inner": {"x": "1"}}}),
        ("one", {"keep": ""}),
    ],
    "struct taken away": [
        ("one", {"probe": {"path": "/", "inner": {"x": "1"}}}),
        ("up", {"probe": {"path": "/2"}}),
        ("one", {"keep": ""}),
    ],
    "own again": [
        ("one", {"probe": {"path": "/", "inner": {"x": "1"}}}),
        ("one", {"probe": {"inner": {}}}),
    ],
}


EXPECTED: dict[str, Any] = {
    "struct": {"color": "red", "keep": ""},
    "field of a struct": {"color": "red", "probe": {"path": "/", "port": 80, "scheme": "HTTP"}},
    "only field of a struct": {"color": "red", "probe": {"port": 80, "scheme": "HTTP"}},
    "struct within": {"color": "red", "keep": ""},
    "all": {},
    "item": {"color": "red", "items": [{"name": "b", "size": 1}]},
    "items": {"color": "red", "keep": ""},
    "no items": {},
    "atomic items": {"color": "red", "keep": ""},
    "tags": {"color": "red", "tags": ["b", "c"]},
    "named": {"color": "red", "named": {"l": {"port": 80, "scheme": "HTTP"}}},
    "all named": {"color": "red", "keep": ""},
    "struct with an update": {"color": "red", "keep": "", "probe": {"port": 81, "scheme": "HTTP"}},
    "item with an update of many": {"color": "red", "items": [{"name": "b", "size": 1}]},
    "named with more": {
        "color": "red",
        "keep": "",
        "named": {"l": {"path": "/", "port": 80, "scheme": "HTTP"}},
    },
    "item of two": {"color": "red", "items": [{"name": "a", "note": "n", "size": 1}], "keep": ""},
    "struct of two": {
        "color": "red",
        "keep": "",
        "probe": {"inner": {"x": "1", "y": "y"}, "port": 80, "scheme": "HTTP"},
    },
    "struct taken away": {
        "color": "red",
        "keep": "",
        "probe": {"path": "/2", "port": 80, "scheme": "HTTP"},
    },
    "own again": {"color": "red", "probe": {"inner": {"y": "y"}, "port": 80, "scheme": "HTTP"}},
}


def _step(
    admin: kube_servers.Http, path: str, who: str, spec: dict[str, Any] | None
) -> kube_servers.Response:
    if who == "up":
        return admin.patch(path, {"spec": spec}, fieldManager=who)
    return admin.patch(path, _kit(spec), form=APPLY, fieldManager=who)


def _run_steps(admin: kube_servers.Http, namespace: str, story: str) -> kube_servers.Response:
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/kits/k"
    *before, last = STORIES[story]
    for who, spec in before:
        _step(admin, path, who, spec).ok()
    return _step(admin, path, *last)


@pytest.mark.usefixtures("kits")
@pytest.mark.parametrize("story", EXPECTED)
def test_fields_removed_with_their_owner(
    admin: kube_servers.Http, namespace: str, story: str
) -> None:
    found = _run_steps(admin, namespace, story).ok()
    assert (found.get("spec") or {}) == EXPECTED[story]


@pytest.mark.usefixtures("kits")
@pytest.mark.parametrize("story", sorted(STORIES.keys() - EXPECTED.keys()))
def test_nothing_that_is_left_is_refused(
    admin: kube_servers.Http, namespace: str, story: str
) -> None:
    """A list or map that has nothing left becomes null, which its schema does not allow."""
    assert _run_steps(admin, namespace, story).status == 422
