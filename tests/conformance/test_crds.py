"""Kinds that users define: served soon after, checked by their schema, changed and taken away."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import kube_servers, waiting
from support.kube_servers import CRDS, MERGE, TABLE

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SIZE = {"type": "integer", "minimum": 1}
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": SIZE,
        "replicas": {"type": "integer"},
        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
        "odd": {"type": "string", "nullable": True},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True},
        "tags": {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "string"},
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
            },
        },
    },
}
STATUS = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "phase": {"type": "string"},
    },
}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Odd", "type": "string", "jsonPath": ".spec.odd", "priority": 1},
        ],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": SPEC, "status": STATUS},
            }
        },
        **more,
    }


def definition(group: str, **spec: Any) -> dict[str, Any]:
    names = {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]}
    plural = spec.get("names", names).get("plural", "")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version()],
            **spec,
        },
    }


def is_established(admin: kube_servers.Http, name: str) -> bool:
    found = admin.get(f"{CRDS}/{name}").json
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def is_discovered(admin: kube_servers.Http, group: str, versions: set[str]) -> bool:
    """In every document of discovery; clients and the controller of namespaces look there."""
    if group not in {one["name"] for one in admin.get("/apis").ok()["groups"]}:
        return False
    alone = admin.get(f"/apis/{group}")
    if alone.status != 200 or {one["version"] for one in alone.ok()["versions"]} != versions:
        return False
    if any(admin.get(f"/apis/{group}/{name}").status != 200 for name in versions):
        return False
    found = admin.get("/apis", headers={"Accept": AGGREGATED}).ok()["items"]
    shown = [item["versions"] for item in found if item["metadata"]["name"] == group]
    return [{one["version"] for one in listed} for listed in shown] == [versions]


Define = Callable[..., str]


@pytest.fixture
def define(admin: kube_servers.Http) -> Iterator[Define]:
    """Makes a definition in a group of its own; the name of the group, once it is served and in
    discovery."""
    made: list[str] = []

    def make(**spec: Any) -> str:
        group = f"{kube_servers.fresh_name('g')}.test"
        body = definition(group, **spec)
        name = body["metadata"]["name"]
        admin.post(CRDS, body).ok()
        made.append(name)
        waiting.wait_until(lambda: is_established(admin, name), what=f"{name} is established")
        served = f"/apis/{group}/{body['spec']['versions'][0]['name']}/widgets"
        waiting.wait_until(lambda: admin.get(served).status == 200, what=f"{served} is served")
        names = {one["name"] for one in body["spec"]["versions"]}
        waiting.wait_until(
            lambda: is_discovered(admin, group, names), what=f"{group} is discovered"
        )
        return group

    yield make
    for name in made:
        admin.delete(f"{CRDS}/{name}")


@pytest.fixture
def group(define: Define) -> str:
    """The group of a kind Widget with status and scale."""
    return define()


@pytest.fixture
def widgets(group: str, namespace: str) -> str:
    """The path of Widgets in this namespace."""
    return f"/apis/{group}/v1/namespaces/{namespace}/widgets"


def widget(path: str, name: str, **spec: Any) -> dict[str, Any]:
    api_version = "/".join(path.split("/")[2:4])
    return {
        "apiVersion": api_version,
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


# --- definitions --------------------------------------------------------------------------------


def test_names_are_defaulted_and_accepted(admin: kube_servers.Http, group: str) -> None:
    """singular, listKind and conversion; the status says that it is established, and why."""
    found = admin.get(f"{CRDS}/widgets.{group}").json
    names = {
        "plural": "widgets",
        "singular": "widget",
        "shortNames": ["wd"],
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert found["spec"]["names"] == names
    assert found["spec"]["conversion"] == {"strategy": "None"}
    assert found["status"]["acceptedNames"] == names
    assert found["status"]["storedVersions"] == ["v1"]
    assert [
        (c["type"], c["status"], c["reason"], c["message"]) for c in found["status"]["conditions"]
    ] == [
        ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        (
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    ]
    assert found["metadata"]["generation"] == 1


def test_taken_names_are_not_accepted(admin: kube_servers.Http, group: str) -> None:
    """NamesAccepted is False with the last conflict, and nothing is served."""
    body = definition(group, names={"kind": "Widget", "plural": "gadgets"})
    name = body["metadata"]["name"]
    admin.post(CRDS, body).ok()

    def conditions() -> dict[str, Any]:
        found = admin.get(f"{CRDS}/{name}").json
        return {c["type"]: c for c in (found.get("status") or {}).get("conditions") or ()}

    waiting.wait_until(lambda: len(conditions()) >= 2, what="the names are judged")
    found = conditions()
    assert found["NamesAccepted"]["status"] == "False"
    assert found["NamesAccepted"]["reason"] == "ListKindConflict"
    assert found["NamesAccepted"]["message"] == '"WidgetList" is already in use'
    assert found["Established"]["status"] == "False"
    assert found["Established"]["reason"] == "NotAccepted"
    assert admin.get(f"/apis/{group}/v1/gadgets").status == 404
    admin.delete(f"{CRDS}/{name}").ok()


def test_names_stay_with_the_first_definition(admin: kube_servers.Http, group: str) -> None:
    """The others get the rest of theirs, and all as soon as the first goes."""
    body = definition(group, names={"kind": "Gadget", "plural": "gadgets", "shortNames": ["wd"]})
    name = body["metadata"]["name"]
    admin.post(CRDS, body).ok()

    def status() -> dict[str, Any]:
        found: dict[str, Any] = admin.get(f"{CRDS}/{name}").json.get("status") or {}
        return found

    def conditions() -> dict[str, Any]:
        return {c["type"]: c for c in status().get("conditions") or ()}

    waiting.wait_until(lambda: len(conditions()) >= 2, what="the names are judged")
    refused = conditions()["NamesAccepted"]
    assert (refused["status"], refused["reason"], refused["message"]) == (
        "False",
        "ShortNamesConflict",
        '"wd" is already in use',
    )
    assert status()["acceptedNames"] == {
        "plural": "gadgets",
        "singular": "gadget",
        "kind": "Gadget",
        "listKind": "GadgetList",
    }
    assert is_established(admin, f"widgets.{group}")
    admin.delete(f"{CRDS}/widgets.{group}").ok()
    waiting.wait_until(lambda: is_established(admin, name), what="the name is free")
    assert conditions()["NamesAccepted"]["status"] == "True"
    assert status()["acceptedNames"]["shortNames"] == ["wd"]
    admin.delete(f"{CRDS}/{name}").ok()


def test_established_definition_is_served_without_refused_name(
    admin: kube_servers.Http, group: str
) -> None:
    """A change of its short names to those of another is refused; all else goes on."""
    body = definition(group, names={"kind": "Gadget", "plural": "gadgets", "shortNames": ["gd"]})
    name = body["metadata"]["name"]
    admin.post(CRDS, body).ok()
    waiting.wait_until(lambda: is_established(admin, name), what="gadgets are established")
    admin.patch(f"{CRDS}/{name}", {"spec": {"names": {"shortNames": ["wd"]}}}).ok()

    def accepted_statuses() -> list[str]:
        found = admin.get(f"{CRDS}/{name}").json["status"]["conditions"]
        return [c["status"] for c in found if c["type"] == "NamesAccepted"]

    waiting.wait_until(lambda: accepted_statuses() == ["False"], what="the short name is refused")
    assert is_established(admin, name)
    assert admin.get(f"{CRDS}/{name}").json["status"]["acceptedNames"]["shortNames"] == ["gd"]
    served = admin.get(f"/apis/{group}/v1").ok()["resources"]
    assert {r["name"]: r.get("shortNames") for r in served if "/" not in r["name"]} == {
        "gadgets": ["gd"],
        "widgets": ["wd"],
    }
    admin.delete(f"{CRDS}/{name}").ok()


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            ["spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required"],
        ),
        (
            {"scope": "X"},
            ['spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced"'],
        ),
        (
            {
                "versions": [
                    version(schema={"openAPIV3Schema": {"properties": {"a": {}}}}),
                ]
            },
            [
                (
                    "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not "
                    "be empty for specified object fields"
                ),
                (
                    "spec.validation.openAPIV3Schema.type: Required value: must not be empty at "
                    "the root"
                ),
            ],
        ),
    ],
    ids=["schema", "scope", "types"],
)
def test_invalid_definitions_are_rejected(
    admin: kube_servers.Http, spec: dict[str, Any], causes: list[str]
) -> None:
    body = definition("bad.test", **spec)
    done = admin.post(CRDS, body)
    assert done.status == 422
    listed = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
    assert done.message == (
        f'CustomResourceDefinition.apiextensions.k8s.io "widgets.bad.test" is invalid: {listed}'
    )


def test_definition_name_must_be_plural_and_group(admin: kube_servers.Http) -> None:
    body = definition("bad.test")
    body["metadata"]["name"] = "wrong"
    assert admin.post(CRDS, body).message == (
        'CustomResourceDefinition.apiextensions.k8s.io "wrong" is invalid: metadata.name: Invalid '
        'value: "wrong": must be spec.names.plural+"."+spec.group'
    )


def test_exactly_one_version_must_be_stored(admin: kube_servers.Http) -> None:
    """Neither none nor two."""
    body = definition("bad.test", versions=[version(storage=False)])
    done = admin.post(CRDS, body)
    assert done.status == 422
    assert "must have exactly one version marked as storage version" in done.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"names": {"kind": "Other"}}, "spec.names.kind"),
        ({"scope": "Cluster"}, "spec.scope"),
        ({"group": "x.y"}, "spec.group"),
    ],
)
def test_identity_of_established_definition_cannot_change(
    admin: kube_servers.Http, group: str, change: Any, field: str
) -> None:
    """kind, scope and group are fixed."""
    done = admin.patch(f"{CRDS}/widgets.{group}", {"spec": change})
    assert done.status == 422
    assert field in [c["field"] for c in done.json["details"]["causes"]]
    assert "field is immutable" in done.message


def test_discovery_lists_the_new_kind(admin: kube_servers.Http, group: str) -> None:
    """With its subresources; the plain list has another order of verbs than of built-in kinds."""
    found = admin.get(f"/apis/{group}/v1").ok()["resources"]
    assert [(r["name"], r["kind"], r["namespaced"]) for r in found] == [
        ("widgets", "Widget", True),
        ("widgets/status", "Widget", True),
        ("widgets/scale", "Scale", True),
    ]
    assert found[0]["singularName"] == "widget"
    assert found[0]["shortNames"] == ["wd"]
    assert set(found[0]["verbs"]) == {
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    }
    assert (found[2]["group"], found[2]["version"]) == ("autoscaling", "v1")
    assert group in [g["name"] for g in admin.get("/apis").json["groups"]]


def test_cluster_scoped_custom_kind_is_served(admin: kube_servers.Http, define: Define) -> None:
    group = define(scope="Cluster")
    path = f"/apis/{group}/v1/widgets"
    made = admin.post(path, widget(path, "a", size=1)).ok()
    assert "namespace" not in made["metadata"]
    assert admin.get(f"{path}/a").status == 200


def test_deletion_of_definition_deletes_its_objects(
    admin: kube_servers.Http, group: str, widgets: str
) -> None:
    """The response shows the clean-up's finalizer; the objects go first; then there is no path."""
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    held = widget(widgets, "b", size=1)
    held["metadata"]["finalizers"] = ["a.b/c"]
    admin.post(widgets, held).ok()
    gone = admin.delete(f"{CRDS}/widgets.{group}").ok()
    assert gone["metadata"]["deletionTimestamp"]
    assert gone["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    waiting.wait_until(lambda: admin.get(f"{widgets}/a").status == 404, what="a is gone")
    waiting.wait_until(
        lambda: "deletionTimestamp" in admin.get(f"{widgets}/b").ok()["metadata"],
        what="b is marked",
    )
    assert admin.get(f"{CRDS}/widgets.{group}").status == 200
    admin.patch(f"{widgets}/b", {"metadata": {"finalizers": None}}).ok()
    waiting.wait_until(
        lambda: admin.get(f"{CRDS}/widgets.{group}").status == 404, what="the kind is gone"
    )
    waiting.wait_until(lambda: admin.get(widgets).status == 404, what="the path is gone")
    assert b"404 page not found" in admin.get(widgets).body


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_deleted_definition_is_marked_with_every_policy(
    admin: kube_servers.Http, group: str, widgets: str, policy: str
) -> None:
    """The response has the condition and the finalizer; a trial run shows the same."""
    path = f"{CRDS}/widgets.{group}"
    held = widget(widgets, "held", size=1)
    held["metadata"]["finalizers"] = ["a.b/c"]
    admin.post(widgets, held).ok()
    before = admin.get(path).json
    assert "finalizers" not in before["metadata"]
    trial = admin.delete(path, dryRun="All", propagationPolicy=policy).ok()
    assert admin.get(path).json == before
    for shown in (trial, admin.delete(path, propagationPolicy=policy).ok()):
        metadata = shown["metadata"]
        assert metadata["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        assert metadata["generation"] == before["metadata"]["generation"]
        assert metadata["deletionTimestamp"]
        assert "deletionGracePeriodSeconds" not in metadata
        (condition,) = (c for c in shown["status"]["conditions"] if c["type"] == "Terminating")
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion "
            "will begin soon",
        }
    admin.patch(f"{widgets}/held", {"metadata": {"finalizers": None}}).ok()
    waiting.wait_until(lambda: admin.get(path).status == 404, what="the definition is gone")


def test_terminating_definition_accepts_no_new_objects(
    admin: kube_servers.Http, group: str, widgets: str
) -> None:
    """Those that are there may be changed, to let them go; discovery says which verbs are left."""
    name = f"{CRDS}/widgets.{group}"
    held = widget(widgets, "held", size=1)
    held["metadata"]["finalizers"] = ["a.b/c"]
    admin.post(widgets, held).ok()
    admin.delete(name).ok()

    def condition() -> tuple[str, str]:
        found = admin.get(name).json["status"]["conditions"]
        all_ = {c["type"]: (c["status"], c["reason"]) for c in found}
        return all_.get("Terminating", ("", ""))

    expected = ("True", "InstanceDeletionInProgress")
    waiting.wait_until(lambda: condition() == expected, what="it is said to be terminating")

    def verbs() -> set[str]:
        listed = admin.get(f"/apis/{group}/v1").ok()["resources"]
        return {verb for r in listed if r["name"] == "widgets" for verb in r["verbs"]}

    left = {"delete", "deletecollection", "get", "list", "watch"}
    waiting.wait_until(lambda: verbs() == left, what="discovery knows it")
    refused = admin.post(widgets, widget(widgets, "new", size=1))
    assert (refused.status, refused.json["reason"]) == (405, "MethodNotAllowed")
    assert refused.message == "create not allowed while custom resource definition is terminating"
    assert refused.json["details"] == {"group": group, "kind": "widgets"}
    assert admin.get(f"{widgets}/new").status == 404
    admin.patch(f"{widgets}/held", {"metadata": {"finalizers": None}}).ok()
    waiting.wait_until(lambda: admin.get(name).status == 404, what="the definition is gone")


# --- objects ------------------------------------------------------------------------------------


def test_defaults_are_filled_in_and_unknown_fields_pruned(
    admin: kube_servers.Http, widgets: str
) -> None:
    """With a warning for what is pruned; generation begins with 1."""
    made = admin.post(widgets, widget(widgets, "a", size=1, unknown=3))
    assert made.ok()["spec"] == {"size": 1, "color": "red"}
    assert made.warnings == [r'299 - "unknown field \"spec.unknown\""']
    assert made.json["metadata"]["generation"] == 1


def test_strict_validation_rejects_unknown_fields(admin: kube_servers.Http, widgets: str) -> None:
    done = admin.post(widgets, widget(widgets, "a", size=1, unknown=3), fieldValidation="Strict")
    assert done.status == 400
    assert done.message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown '
        'field "spec.unknown"'
    )


def test_open_parts_of_a_schema_are_kept(admin: kube_servers.Http, widgets: str) -> None:
    """nullable, preserved and int-or-string fields."""
    spec = {"size": 1, "odd": None, "either": "a", "any": {"x": None, "y": [1, {"z": "q"}]}}
    made = admin.post(widgets, widget(widgets, "a", **spec)).ok()
    assert made["spec"] == {**spec, "color": "red"}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"size": 0},
            ("spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ),
        ({}, "spec.size: Required value"),
        (
            {"size": "x"},
            (
                'spec.size: Invalid value: "string": spec.size in body must be of type integer: '
                '"string"'
            ),
        ),
        (
            {"size": 1, "color": "green"},
            ('spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ),
        (
            {"size": 1, "tags": ["a", "a"]},
            'spec.tags[1]: Duplicate value: "a"',
        ),
        (
            {"size": 1, "ports": [{"name": "a"}, {"name": "a"}]},
            ('spec.ports[1]: Duplicate value: map[string]interface {}{"name":"a"}'),
        ),
    ],
    ids=["minimum", "required", "type", "enum", "set", "map"],
)
def test_objects_are_validated_by_the_schema(
    admin: kube_servers.Http, widgets: str, spec: dict[str, Any], text: str
) -> None:
    """422 in the words of the OpenAPI validator."""
    done = admin.post(widgets, widget(widgets, "c", **spec))
    assert done.status == 422
    group = widgets.split("/")[2]
    assert done.message == f'Widget.{group} "c" is invalid: {text}'
    assert done.json["details"]["kind"] == "Widget"
    assert done.json["details"]["group"] == group


def test_object_of_another_kind_is_rejected(admin: kube_servers.Http, widgets: str) -> None:
    """Another kind is 422, another version 400."""
    kind = admin.post(widgets, {**widget(widgets, "c", size=1), "kind": "Foo"})
    assert kind.status == 422
    assert kind.message.endswith('is invalid: kind: Invalid value: "Foo": must be Widget')
    group = widgets.split("/")[2]
    other = admin.post(widgets, {**widget(widgets, "c", size=1), "apiVersion": f"{group}/v2"})
    assert other.status == 400
    assert other.message == (
        f"the API version in the data ({group}/v2) does not match the expected API version "
        f"({group}/v1)"
    )


def test_missing_kind_is_a_bad_request(admin: kube_servers.Http, widgets: str) -> None:
    """400, unlike for built-in kinds."""
    done = admin.post(widgets, {"metadata": {"name": "c"}, "spec": {"size": 1}})
    assert done.status == 400
    assert "Object 'Kind' is missing in" in done.message


def test_update_requires_resource_version(admin: kube_servers.Http, widgets: str) -> None:
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    done = admin.put(f"{widgets}/a", widget(widgets, "a", size=2))
    assert done.status == 422
    group = widgets.split("/")[2]
    assert done.message == (
        f'widgets.{group} "a" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be '
        "specified for an update"
    )


def test_patched_objects_are_validated(admin: kube_servers.Http, widgets: str) -> None:
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    assert admin.patch(f"{widgets}/a", {"spec": {"size": 0}}).status == 422
    assert admin.patch(f"{widgets}/a", {"spec": {"foo": 0}}).warnings == [
        r'299 - "unknown field \"spec.foo\""'
    ]
    strict = admin.patch(f"{widgets}/a", {"spec": {"foo": 0}}, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.message.endswith('strict decoding error: unknown field "spec.foo"')
    removed = admin.patch(f"{widgets}/a", {"spec": {"color": None}}).ok()
    assert removed["spec"]["color"] == "red"


def test_table_has_columns_of_the_definition(admin: kube_servers.Http, widgets: str) -> None:
    """Name, then those of the definition; no Age unless it is asked for."""
    admin.post(widgets, widget(widgets, "a", size=3, odd="x")).ok()
    table = admin.get(widgets, headers={"Accept": TABLE}).ok()
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Odd", "string", 1),
    ]
    assert table["rows"][0]["cells"] == ["a", 3, "x"]
    assert table["columnDefinitions"][1]["description"] == (
        "Custom resource definition column (in JSONPath format): .spec.size"
    )


def test_custom_kind_can_be_watched(admin: kube_servers.Http, widgets: str) -> None:
    with admin.watch(widgets) as watch:
        admin.post(widgets, widget(widgets, "a", size=1)).ok()
        admin.delete(f"{widgets}/a").ok()
        assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_custom_objects_have_namespaces_and_owners(
    admin: kube_servers.Http, widgets: str, namespace: str
) -> None:
    """Dependents of a Widget may be orphaned; a Widget goes with its namespace."""
    made = admin.post(widgets, widget(widgets, "a", size=1)).ok()
    owner = {
        "apiVersion": made["apiVersion"],
        "kind": "Widget",
        "name": "a",
        "uid": made["metadata"]["uid"],
    }
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(maps, {"metadata": {"name": "c", "ownerReferences": [owner]}}).ok()
    admin.delete(f"/api/v1/namespaces/{namespace}").ok()
    waiting.wait_until(
        lambda: admin.get(f"{widgets}/a").status == 404, what="a is gone", timeout_s=90
    )


def test_dependent_waits_for_the_kind_of_its_owner(
    admin: kube_servers.Http, namespace: str
) -> None:
    """It is unknown whether the owner is there until its kind is served; then it is not."""
    group = f"{kube_servers.fresh_name('g')}.test"
    owner = {"apiVersion": f"{group}/v1", "kind": "Widget", "name": "a", "uid": "11"}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(maps, {"metadata": {"name": "c", "ownerReferences": [owner]}}).ok()
    body = definition(group)
    admin.post(CRDS, body).ok()
    try:
        waiting.wait_until(
            lambda: admin.get(f"{maps}/c").status == 404, what="c is gone", timeout_s=120
        )
    finally:
        admin.delete(f"{CRDS}/{body['metadata']['name']}")


# --- status and scale ---------------------------------------------------------------------------


def test_status_and_spec_are_written_separately(admin: kube_servers.Http, widgets: str) -> None:
    """Each path writes its own; metadata belongs to the main one; generation counts the spec."""
    made = widget(widgets, "a", size=1) | {"status": {"phase": "x"}}
    assert "status" not in admin.post(widgets, made).ok()
    main = admin.patch(f"{widgets}/a", {"status": {"phase": "x"}, "spec": {"size": 3}}).ok()
    assert "status" not in main
    assert main["metadata"]["generation"] == 2
    change = {
        "status": {"phase": "x"},
        "spec": {"size": 9},
        "metadata": {"labels": {"q": "r"}, "finalizers": ["a.b/c"]},
    }
    below = admin.patch(f"{widgets}/a/status", change).ok()
    assert below["status"] == {"phase": "x"}
    assert below["spec"]["size"] == 3
    assert below["metadata"].keys().isdisjoint({"labels", "finalizers"})
    assert below["metadata"]["generation"] == 2
    assert admin.get(f"{widgets}/a/status").json == below
    whole = below | {"status": {"phase": "y"}, "spec": {"size": 9}}
    put = admin.put(f"{widgets}/a/status", whole).ok()
    assert (put["status"], put["spec"]["size"]) == ({"phase": "y"}, 3)


def test_scale_reads_and_writes_replicas(admin: kube_servers.Http, widgets: str) -> None:
    """As a Scale of autoscaling/v1; the object itself changes with it."""
    admin.post(widgets, widget(widgets, "a", size=1, replicas=2)).ok()
    admin.patch(f"{widgets}/a/status", {"status": {"replicas": 1, "selector": "a=b"}}).ok()
    scale = admin.get(f"{widgets}/a/scale").ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    patched = admin.patch(f"{widgets}/a/scale", {"spec": {"replicas": 4}}).ok()
    assert patched["spec"] == {"replicas": 4}
    found = admin.get(f"{widgets}/a").json
    assert found["spec"]["replicas"] == 4
    assert found["metadata"]["generation"] == 2
    patched["spec"]["replicas"] = 5
    assert admin.put(f"{widgets}/a/scale", patched).ok()["spec"] == {"replicas": 5}
    assert admin.put(f"{widgets}/a/scale", scale).status == 409


def test_invalid_scale_is_rejected(admin: kube_servers.Http, widgets: str) -> None:
    """Below nothing is nothing; a kind without a number of replicas cannot be read as a Scale."""
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    negative = admin.patch(f"{widgets}/a/scale", {"spec": {"replicas": -1}})
    assert negative.status == 422
    assert admin.get(f"{widgets}/none/scale").status == 404
    missing = admin.get(f"{widgets}/a/scale")
    assert missing.status == 500
    assert missing.message == (
        'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    )


# --- several versions ---------------------------------------------------------------------------


def test_two_versions_share_one_store(
    admin: kube_servers.Http, define: Define, namespace: str
) -> None:
    """One store, two names: apiVersion is that of the path; the newest is preferred."""
    group = define(versions=[version("v1"), version("v2", storage=False)])
    found = admin.get(f"/apis/{group}").ok()
    assert [v["version"] for v in found["versions"]] == ["v2", "v1"]
    assert found["preferredVersion"]["version"] == "v2"
    one, two = (f"/apis/{group}/{v}/namespaces/{namespace}/widgets" for v in ("v1", "v2"))
    made = admin.post(two, widget(two, "a", size=1)).ok()
    assert made["apiVersion"] == f"{group}/v2"
    assert admin.get(f"{one}/a").json["apiVersion"] == f"{group}/v1"
    listed = admin.get(two).ok()
    assert listed["items"][0]["apiVersion"] == f"{group}/v2"
    assert listed["apiVersion"] == f"{group}/v2"
    patched = admin.patch(f"{two}/a", {"spec": {"size": 2}}, form=MERGE).ok()
    assert (patched["apiVersion"], patched["metadata"]["generation"]) == (f"{group}/v2", 2)
    with admin.watch(two, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
        assert watch.next().object["apiVersion"] == f"{group}/v2"


def test_version_can_be_added_to_a_definition(
    admin: kube_servers.Http, group: str, widgets: str, namespace: str
) -> None:
    """Objects stay; a new storage version joins those in the status; the old must stay listed."""
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    name = f"{CRDS}/widgets.{group}"
    versions = [version("v1", storage=False), version("v2")]
    admin.patch(name, {"spec": {"versions": versions}}).ok()
    two = f"/apis/{group}/v2/namespaces/{namespace}/widgets"
    waiting.wait_until(lambda: admin.get(f"{two}/a").status == 200, what="v2 is served")
    assert admin.get(f"{two}/a").json["apiVersion"] == f"{group}/v2"
    waiting.wait_until(
        lambda: admin.get(name).json["status"]["storedVersions"] == ["v1", "v2"],
        what="both versions are stored",
    )
    dropped = admin.patch(name, {"spec": {"versions": [version("v2")]}})
    assert dropped.status == 422
    assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions' in (
        dropped.message
    )


def test_changed_schema_applies_to_new_writes_only(
    admin: kube_servers.Http, group: str, widgets: str
) -> None:
    """New rules hold for new writes; what is stored is not judged again."""
    admin.post(widgets, widget(widgets, "a", size=1)).ok()
    stricter = version()
    spec = {**SPEC, "properties": {**SPEC["properties"], "size": {**SIZE, "minimum": 10}}}
    stricter["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": STATUS}}
    }
    admin.patch(f"{CRDS}/widgets.{group}", {"spec": {"versions": [stricter]}}).ok()
    waiting.wait_until(
        lambda: admin.post(widgets, widget(widgets, "b", size=5), dryRun="All").status == 422,
        what="the new rule holds",
    )
    assert admin.get(f"{widgets}/a").json["spec"]["size"] == 1
    admin.patch(f"{widgets}/a", {"metadata": {"labels": {"a": "b"}}}).ok()
    assert admin.patch(f"{widgets}/a", {"spec": {"size": 2}}).status == 422


@pytest.mark.parametrize("said", ["", "yes", "unapproved, a test"])
def test_kubernetes_groups_need_an_approval_annotation(admin: kube_servers.Http, said: str) -> None:
    """An annotation with a URL, or a reason that begins with `unapproved` (KEP-1111)."""
    wanted = definition(f"{kube_servers.fresh_name('g')}.k8s.io")
    if said:
        wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": said}
    done = admin.post(CRDS, wanted)
    if said.startswith("unapproved"):
        done.ok()
        admin.delete(f"{CRDS}/{wanted['metadata']['name']}").ok()
        return
    assert done.status == 422
    text = 'protected groups must have approval annotation "api-approved.kubernetes.io"'
    assert f"metadata.annotations[api-approved.kubernetes.io]: {text}" in done.message.replace(
        "Required value: ", ""
    ).replace('Invalid value: "yes": ', "")


def test_patterns_must_be_valid_in_re2(admin: kube_servers.Http) -> None:
    """What only other engines read is refused, with the place and its own words."""
    wanted = definition(f"{kube_servers.fresh_name('g')}.test")
    schema = wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        "type": "object",
        "properties": {"color": {"type": "string", "pattern": "^(?=a)"}},
    }
    done = admin.post(CRDS, wanted)
    assert done.status == 422
    assert (
        "spec.validation.openAPIV3Schema.properties[spec].properties[color].pattern: Invalid "
        'value: "^(?=a)": must be a valid regular expression, but isn\'t: error parsing regexp: '
        "invalid or unsupported Perl syntax: "
    ) in done.message


def test_short_names_and_categories_must_be_labels(admin: kube_servers.Http) -> None:
    names = {"kind": "Widget", "plural": "widgets"}
    wanted = definition(
        f"{kube_servers.fresh_name('g')}.test",
        names={**names, "shortNames": ["w", "a/b"], "categories": ["C", "all"]},
    )
    done = admin.post(CRDS, wanted)
    assert done.status == 422
    for field, value in (("shortNames[1]", "a/b"), ("categories[0]", "C")):
        assert f'spec.names.{field}: Invalid value: "{value}": a DNS-1035 label' in done.message
