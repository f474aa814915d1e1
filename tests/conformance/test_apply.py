"""Server-side apply: who owns which field, conflicts, and removal of what has no manager."""

from typing import Any

import pytest

from support import kube_servers
from support.kube_servers import APPLY, JSON_PATCH, MERGE


@pytest.fixture
def path(namespace: str) -> str:
    """Of a ConfigMap that is not there yet."""
    return f"/api/v1/namespaces/{namespace}/configmaps/a"


def config_map(data: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return body if data is None else {**body, "data": data}


def apply(
    admin: kube_servers.Http, path: str, body: Any, manager: str = "one", **query: str
) -> kube_servers.Response:
    return admin.patch(path, body, form=APPLY, fieldManager=manager, **query)


def owners(obj: Any) -> dict[tuple[str, str], Any]:
    """(manager, operation) → fields, of an response's object."""
    entries = obj["metadata"].get("managedFields") or ()
    return {(e["manager"], e["operation"]): e["fieldsV1"] for e in entries}


def test_apply_creates_missing_object(admin: kube_servers.Http, path: str) -> None:
    """201; the applier owns what it named, and nothing else."""
    made = apply(admin, path, config_map({"a": "1", "b": "2"}))
    assert made.status == 201
    (entry,) = made.json["metadata"]["managedFields"]
    assert entry.pop("time")
    assert entry == {
        "manager": "one",
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
    }


def test_repeated_apply_writes_nothing(admin: kube_servers.Http, path: str) -> None:
    first = apply(admin, path, config_map({"a": "1"})).ok()
    again = apply(admin, path, config_map({"a": "1"}))
    assert again.status == 200
    assert again.json == first


def test_different_value_is_a_conflict_unless_forced(admin: kube_servers.Http, path: str) -> None:
    """409 with a cause for each field; force takes it over."""
    apply(admin, path, config_map({"a": "1", "b": "2"})).ok()
    refused = apply(admin, path, config_map({"a": "9"}), "two")
    assert refused.status == 409
    assert refused.reason == "Conflict"
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refused.json["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "one"',
                "field": ".data.a",
            }
        ]
    }
    forced = apply(admin, path, config_map({"a": "9"}), "two", force="true").ok()
    assert forced["data"] == {"a": "9", "b": "2"}
    assert owners(forced) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("two", "Apply"): {"f:data": {"f:a": {}}},
    }


def test_several_conflicts_are_listed(admin: kube_servers.Http, path: str) -> None:
    apply(admin, path, config_map({"a": "1", "b": "2"})).ok()
    refused = apply(admin, path, config_map({"a": "8", "b": "9"}), "two")
    assert refused.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
    )


def test_equal_value_has_two_owners(admin: kube_servers.Http, path: str) -> None:
    """Both own it, and it stays until both have let it go."""
    apply(admin, path, config_map({"a": "1"})).ok()
    both = apply(admin, path, config_map({"a": "1", "b": "2"}), "two").ok()
    assert owners(both)["one", "Apply"] == {"f:data": {"f:a": {}}}
    kept = apply(admin, path, config_map({"b": "2"}), "two").ok()
    assert kept["data"] == {"a": "1", "b": "2"}
    gone = apply(admin, path, config_map()).ok()
    assert gone["data"] == {"b": "2"}
    assert ("one", "Apply") not in owners(gone)


def test_omitted_field_is_removed(admin: kube_servers.Http, path: str) -> None:
    """Also the map around it, when that is empty then."""
    apply(admin, path, config_map({"a": "1", "b": "2"}, labels={"x": "y"})).ok()
    less = apply(admin, path, config_map({"a": "1"})).ok()
    assert less["data"] == {"a": "1"}
    assert "labels" not in less["metadata"]


def test_update_owns_the_fields_it_changes(admin: kube_servers.Http, path: str) -> None:
    """And take it from the applier without a conflict; the applier meets one."""
    apply(admin, path, config_map({"a": "1", "b": "2"})).ok()
    changed = admin.patch(path, {"data": {"a": "z"}}, fieldManager="ed").ok()
    assert owners(changed) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("ed", "Update"): {"f:data": {"f:a": {}}},
    }
    refused = apply(admin, path, config_map({"a": "1", "b": "2"}))
    assert refused.status == 409
    assert refused.message == ('Apply failed with 1 conflict: conflict with "ed" using v1: .data.a')


def test_creator_owns_the_fields_of_new_object(admin: kube_servers.Http, path: str) -> None:
    """A created object belongs to its creator, named by fieldManager or by the program."""
    collection = path.removesuffix("/a")
    named = admin.post(collection, config_map({"a": "1"}), fieldManager="maker").ok()
    assert owners(named) == {("maker", "Update"): {"f:data": {".": {}, "f:a": {}}}}
    body = config_map({"a": "1"}, labels={"x": "y"}) | {"metadata": {"name": "b"}}
    headers = {"User-Agent": "prog/1.0 (linux)"}
    assert owners(admin.post(collection, body, headers=headers).ok()).keys() == {("prog", "Update")}


def test_first_apply_adds_owner_to_untracked_object(admin: kube_servers.Http, path: str) -> None:
    """`before-first-apply` owns what was there."""
    collection = path.removesuffix("/a")
    admin.post(collection, config_map({"a": "1"})).ok()
    reset = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
    assert not owners(admin.patch(path, reset, form=JSON_PATCH).ok())
    untracked = admin.patch(path, {"data": {"c": "3"}}, fieldManager="ed").ok()
    assert not owners(untracked)
    applied = apply(admin, path, config_map({"b": "2"})).ok()
    assert owners(applied) == {
        ("before-first-apply", "Update"): {"f:data": {".": {}, "f:a": {}, "f:c": {}}},
        ("one", "Apply"): {"f:data": {"f:b": {}}},
    }


def test_apply_options_are_validated(admin: kube_servers.Http, path: str) -> None:
    """A manager is needed; force is for apply only."""
    nameless = admin.patch(path, config_map(), form=APPLY)
    assert nameless.status == 422
    assert nameless.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for '
        "apply patch"
    )
    merge = admin.patch(path, {}, form=MERGE, force="true")
    assert merge.status == 422
    assert merge.message == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for '
        "non-apply patch"
    )


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"metadata": {"name": "a"}}, 400, "invalid object type: /, Kind="),
        (
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            config_map(managedFields=[{"manager": "x"}]),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            {**config_map(), "metadata": {"name": "z"}},
            400,
            "the name of the object (z) does not match the name on the URL (a)",
        ),
        (
            {**config_map(), "dat": {}},
            500,
            (
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dat: field not "
                "declared in schema"
            ),
        ),
        (
            config_map({"x": 1}),
            500,
            (
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.x: expected "
                "string, got &value.valueUnstructured{Value:1}"
            ),
        ),
    ],
    ids=["nothing", "kind", "managers", "name", "unknown", "type"],
)
def test_config_of_wrong_type_is_rejected(
    admin: kube_servers.Http, path: str, body: Any, status: int, text: str
) -> None:
    """Unknown fields and wrong types are 500: the object does not fit the schema."""
    done = apply(admin, path, body)
    assert (done.status, done.message) == (status, text)


def test_name_may_be_omitted_for_existing_object(admin: kube_servers.Http, path: str) -> None:
    """Of an object that is there; a new one needs it. YAML is taken."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\ndata: {a: b}\n"
    assert apply(admin, path, text).status == 400
    apply(admin, path, config_map()).ok()
    assert apply(admin, path, text).ok()["data"] == {"a": "b"}


def test_version_and_uid_are_preconditions(admin: kube_servers.Http, path: str) -> None:
    ghost = apply(admin, path, config_map(uid="x"))
    assert ghost.status == 409
    assert ghost.message.endswith(
        "uid mismatch: the provided object specified uid x, and no existing object was found"
    )
    apply(admin, path, config_map({"a": "1"})).ok()
    assert apply(admin, path, config_map({"a": "2"}, resourceVersion="1")).status == 409


def test_dry_run_apply_stores_nothing(admin: kube_servers.Http, path: str) -> None:
    assert apply(admin, path, config_map({"a": "1"}), dryRun="All").status == 201
    assert admin.get(path).status == 404
    apply(admin, path, config_map({"a": "1"})).ok()
    assert apply(admin, path, config_map({"a": "2"}), "two", dryRun="All").status == 409


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), **spec},
    }


def test_lists_merge_by_their_keys(admin: kube_servers.Http, namespace: str) -> None:
    """Of a container one applier may own the image, another an annotation's value."""
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    nowhere = {"nodeSelector": {"no": "where"}}
    made = apply(
        admin, path, pod({"name": "a", "image": "x"}, {"name": "b", "image": "y"}, **nowhere)
    )
    assert owners(made.ok())["one", "Apply"]["f:spec"]["f:containers"] == {
        'k:{"name":"a"}': {".": {}, "f:image": {}, "f:name": {}},
        'k:{"name":"b"}': {".": {}, "f:image": {}, "f:name": {}},
    }
    two = apply(admin, path, pod({"name": "b", "image": "z"}), "two")
    assert two.message == (
        'Apply failed with 1 conflict: conflict with "one": .spec.containers[name="b"].image'
    )
    forced = apply(admin, path, pod({"name": "b", "image": "z"}), "two", force="true").ok()
    assert [(c["name"], c["image"]) for c in forced["spec"]["containers"]] == [
        ("a", "x"),
        ("b", "z"),
    ]


def test_status_apply_has_separate_entries(admin: kube_servers.Http, namespace: str) -> None:
    """With the subresource; conditions merge by type, and go when they are named no more."""
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    apply(admin, path, pod({"name": "a", "image": "x"}, nodeSelector={"no": "where"})).ok()

    def conditions(*types: str) -> Any:
        listed = [{"type": t, "status": "True"} for t in types]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "status": {"conditions": listed},
        }
        return apply(admin, f"{path}/status", body, "st").ok()

    done = conditions("x/One", "x/Two")
    entry = next(e for e in done["metadata"]["managedFields"] if e["manager"] == "st")
    assert entry["subresource"] == "status"
    less = conditions("x/Two")
    types = [c["type"] for c in less["status"]["conditions"] if c["type"].startswith("x/")]
    assert types == ["x/Two"]


def test_custom_kinds_can_be_applied(admin: kube_servers.Http, namespace: str) -> None:
    """By the lists of their schemas; unknown fields are refused."""
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/tasks/t"

    def task(**spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": "t"},
            "spec": spec,
        }

    one = {"name": "a", "object": "x"}
    made = apply(admin, path, task(command=["true"], suspend=True, inputs=[one]))
    assert made.status == 201
    assert owners(made.json)["one", "Apply"] == {
        "f:spec": {
            "f:command": {},
            "f:inputs": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:object": {}}},
            "f:suspend": {},
        }
    }
    two = {"name": "b", "object": "y"}
    both = apply(admin, path, task(inputs=[two]), "two").ok()
    assert [i["name"] for i in both["spec"]["inputs"]] == ["a", "b"]
    unknown = apply(admin, path, task(foo=1))
    assert unknown.status == 500
    assert unknown.message.endswith(".spec.foo: field not declared in schema")


def test_kubectl_apply_server_side_reports_conflicts(
    kubectl: kube_servers.Kubectl, admin: kube_servers.Http, path: str
) -> None:
    """`kubectl apply --server-side` says serverside-applied, and tells of conflicts."""
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '1'}\n"
    done = kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    assert done == "configmap/a serverside-applied\n"
    admin.patch(path, {"data": {"a": "2"}}, fieldManager="ed").ok()
    refused = kubectl.refused("apply", "--server-side", "-f", "-", stdin=manifest)
    assert 'conflict with "ed" using v1' in refused
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    assert admin.get(path).json["data"] == {"a": "1"}


def test_kubectl_client_side_apply_can_migrate(
    kubectl: kube_servers.Kubectl, admin: kube_servers.Http, path: str
) -> None:
    """As ever; a later server-side apply takes the fields over from it."""
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '1', b: '2'}\n"
    assert kubectl("apply", "-f", "-", stdin=manifest) == "configmap/a created\n"
    assert kubectl("apply", "-f", "-", stdin=manifest) == "configmap/a unchanged\n"
    less = manifest.replace(", b: '2'", "")
    assert kubectl("apply", "-f", "-", stdin=less) == "configmap/a configured\n"
    assert admin.get(path).json["data"] == {"a": "1"}
    kubectl("apply", "--server-side", "-f", "-", stdin=less.replace("'1'", "'5'"))
    assert admin.get(path).json["data"] == {"a": "5"}
