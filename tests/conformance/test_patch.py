"""The three kinds of patch that change an object as it is: merge, JSON and strategic merge."""

import json
from typing import Any

import pytest

from support import kube_servers
from support.kube_servers import JSON_PATCH, MERGE, STRATEGIC

REJECTED = "the server rejected our request due to an error in our request"


@pytest.fixture
def path(admin: kube_servers.Http, namespace: str) -> str:
    """Of a ConfigMap with `data: {n: "2"}`, a label and two finalizers that are never removed."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    metadata = {"name": "a", "labels": {"x": "y"}}
    admin.post(collection, {"metadata": metadata, "data": {"n": "2"}}).ok()
    return f"{collection}/a"


# --- merge patch (RFC 7386) ---------------------------------------------------------------------


def test_merge_adds_changes_and_removes(admin: kube_servers.Http, path: str) -> None:
    """null removes; the rest stays."""
    done = admin.patch(path, {"data": {"q": "r"}, "metadata": {"labels": {"z": "1"}}}).ok()
    assert done["data"] == {"n": "2", "q": "r"}
    assert done["metadata"]["labels"] == {"x": "y", "z": "1"}
    assert admin.patch(path, {"data": {"q": None}}).ok()["data"] == {"n": "2"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"a"', "error decoding patch: unexpected end of JSON input"),
        ("", "error decoding patch: unexpected end of JSON input"),
        (
            "[]",
            (
                "error decoding patch: json: cannot unmarshal array into Go value of type "
                "map[string]interface {}"
            ),
        ),
        (
            '"x"',
            (
                "error decoding patch: json: cannot unmarshal string into Go value of type "
                "map[string]interface {}"
            ),
        ),
        ("null", "Invalid JSON Patch"),
    ],
    ids=["cut", "nothing", "list", "text", "null"],
)
def test_merge_patch_must_be_an_object(
    admin: kube_servers.Http, path: str, body: str, text: str
) -> None:
    done = admin.patch(path, body)
    assert (done.status, done.message) == (400, text)


def test_merge_to_wrong_type_is_invalid(admin: kube_servers.Http, path: str) -> None:
    """422 without a name or kind; the cause is at `patch` and shows the whole object."""
    done = admin.patch(path, {"data": {"n": 5}})
    assert done.status == 422
    assert done.reason == "Invalid"
    assert done.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert done.message.endswith(
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    )
    assert [c["field"] for c in done.json["details"]["causes"]] == ["patch"]


def test_merge_of_unknown_fields_gives_warning_or_error(
    admin: kube_servers.Http, path: str
) -> None:
    """A warning and no write, or 422 when strict."""
    version = admin.get(path).json["metadata"]["resourceVersion"]
    warned = admin.patch(path, {"dat": {"q": 5}})
    assert warned.ok()["metadata"]["resourceVersion"] == version
    assert warned.warnings == [r'299 - "unknown field \"dat\""']
    strict = admin.patch(path, {"dat": {"q": 5}}, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.message.endswith('strict decoding error: unknown field "dat"')


@pytest.mark.parametrize(
    ("metadata", "status", "text"),
    [
        ({"name": "z"}, 400, "the name of the object (z) does not match the name on the URL (a)"),
        (
            {"namespace": "z"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"uid": "z"},
            422,
            'ConfigMap "a" is invalid: metadata.uid: Invalid value: "z": field is immutable',
        ),
        (
            {"resourceVersion": "1"},
            409,
            (
                'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
        ),
    ],
    ids=["name", "namespace", "uid", "version"],
)
def test_merge_cannot_change_identity(
    admin: kube_servers.Http, path: str, metadata: Any, status: int, text: str
) -> None:
    """What names the object may not change; a version is a demand."""
    done = admin.patch(path, {"metadata": metadata})
    assert (done.status, done.message) == (status, text)


def test_merge_cannot_change_kind(admin: kube_servers.Http, path: str) -> None:
    """422 at `patch`."""
    for change in ({"kind": "Secret"}, {"apiVersion": "v2"}):
        done = admin.patch(path, change)
        assert done.status == 422
        assert [c["field"] for c in done.json["details"]["causes"]] == ["patch"]


def test_patch_of_missing_object_or_collection(admin: kube_servers.Http, path: str) -> None:
    """404 for an object that is not there, 405 for a collection."""
    missing = path.removesuffix("/a")
    assert admin.patch(f"{missing}/nosuch", {}).message == 'configmaps "nosuch" not found'
    assert admin.patch(missing, {}).status == 405


@pytest.mark.parametrize("form", ["application/json", "application/yaml", "text/plain"])
def test_unknown_patch_type_is_unsupported(admin: kube_servers.Http, path: str, form: str) -> None:
    done = admin.patch(path, {}, form=form)
    assert (done.status, done.reason) == (415, "UnsupportedMediaType")


def test_dry_run_patch_stores_nothing(admin: kube_servers.Http, path: str) -> None:
    before = admin.get(path).json
    done = admin.patch(path, {"data": {"dry": "1"}}, dryRun="All").ok()
    assert done["data"] == {"n": "2", "dry": "1"}
    assert admin.get(path).json == before


# --- JSON patch (RFC 6902) ----------------------------------------------------------------------


def test_json_patch_applies_operations_in_order(admin: kube_servers.Http, path: str) -> None:
    done = admin.patch(
        path,
        [
            {"op": "test", "path": "/data/n", "value": "2"},
            {"op": "add", "path": "/data/a", "value": "1"},
            {"op": "copy", "from": "/data/a", "path": "/data/b"},
            {"op": "move", "from": "/data/b", "path": "/data/c"},
            {"op": "replace", "path": "/data/n", "value": "3"},
            {"op": "remove", "path": "/data/a"},
        ],
        form=JSON_PATCH,
    ).ok()
    assert done["data"] == {"c": "1", "n": "3"}


def test_json_patch_positions_in_lists(admin: kube_servers.Http, path: str) -> None:
    """`-` and -1 stand for the end; positions in front shift the rest."""

    def finalizers(*operations: Any) -> Any:
        done = admin.patch(path, list(operations), form=JSON_PATCH).ok()
        return done["metadata"].get("finalizers")

    where = "/metadata/finalizers"
    assert finalizers({"op": "add", "path": where, "value": ["a.b/c"]}) == ["a.b/c"]
    assert finalizers({"op": "add", "path": f"{where}/-", "value": "a.b/d"})[1:] == ["a.b/d"]
    assert finalizers({"op": "add", "path": f"{where}/0", "value": "a.b/e"}) == [
        "a.b/e",
        "a.b/c",
        "a.b/d",
    ]
    assert finalizers({"op": "add", "path": f"{where}/-1", "value": "a.b/f"})[3:] == ["a.b/f"]
    assert finalizers({"op": "remove", "path": f"{where}/1"}) == ["a.b/e", "a.b/d", "a.b/f"]
    assert finalizers({"op": "remove", "path": where}) is None


def test_json_patch_path_escapes(admin: kube_servers.Http, path: str) -> None:
    """~1 is a slash, ~0 a tilde."""
    done = admin.patch(
        path,
        [
            {"op": "add", "path": "/metadata/annotations", "value": {}},
            {"op": "add", "path": "/metadata/annotations/a.b~1c", "value": "x"},
        ],
        form=JSON_PATCH,
    ).ok()
    assert done["metadata"]["annotations"] == {"a.b/c": "x"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/data/x/y", "value": "1"},
        {"op": "add", "path": "/nope/x", "value": "1"},
        {"op": "remove", "path": "/data/nope"},
        {"op": "test", "path": "/data/n", "value": "3"},
        {"op": "test", "path": "/data/nope", "value": "3"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "frob", "path": "/data/n", "value": "3"},
        {"path": "/data/n", "value": "3"},
        {"op": "add", "value": "3"},
        {"op": "move", "from": "/data/none", "path": "/data/q"},
        {"op": "copy", "path": "/data/q"},
        {"op": "add", "path": "/metadata/finalizers/9", "value": "a.b/f"},
        {"op": "remove", "path": "/metadata/finalizers/7"},
    ],
    ids=json.dumps,
)
def test_inapplicable_json_patch_is_invalid(
    admin: kube_servers.Http, path: str, operation: Any
) -> None:
    """422 with a text that does not say why, and no details."""
    version = admin.get(path).json["metadata"]["resourceVersion"]
    done = admin.patch(
        path, [{"op": "add", "path": "/data/first", "value": "1"}, operation], form=JSON_PATCH
    )
    assert done.status == 422
    assert done.reason == "Invalid"
    assert done.message == REJECTED
    assert admin.get(path).json["metadata"]["resourceVersion"] == version


def test_json_patch_replace_adds_missing_field(admin: kube_servers.Http, path: str) -> None:
    """Unlike RFC 6902 §4.3, a missing field of an object is added."""
    done = admin.patch(
        path, [{"op": "replace", "path": "/data/new", "value": "1"}], form=JSON_PATCH
    )
    assert done.ok()["data"] == {"n": "2", "new": "1"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "{}",
            (
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]handlers.jsonPatchOp"
            ),
        ),
        (
            "[1]",
            (
                "error decoding patch: json: cannot unmarshal number into Go value of type "
                "handlers.jsonPatchOp"
            ),
        ),
        ("[{", "error decoding patch: unexpected end of JSON input"),
    ],
    ids=["object", "number", "cut"],
)
def test_json_patch_must_be_a_list_of_operations(
    admin: kube_servers.Http, path: str, body: str, text: str
) -> None:
    done = admin.patch(path, body, form=JSON_PATCH)
    assert (done.status, done.message) == (400, text)


def test_empty_json_patch_changes_nothing(admin: kube_servers.Http, path: str) -> None:
    before = admin.get(path).json
    assert admin.patch(path, [], form=JSON_PATCH).ok() == before


def test_json_patch_with_unknown_fields_gives_warning_or_error(
    admin: kube_servers.Http, path: str
) -> None:
    """Judged like those of a body, and the patch itself as well."""
    operation = {"op": "add", "path": "/foo", "value": "w"}
    assert admin.patch(path, [operation], form=JSON_PATCH).warnings == [
        r'299 - "unknown field \"foo\""'
    ]
    own = '[{"op":"add","path":"/foo","path":"/data/x","value":"w","zz":1}]'
    strict = admin.patch(path, own, form=JSON_PATCH, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.message.endswith(
        'strict decoding error: json patch duplicate field "[0].path", json patch unknown field '
        '"[0].zz"'
    )


def test_json_patch_is_limited_to_10000_operations(admin: kube_servers.Http, path: str) -> None:
    operations = [{"op": "test", "path": "/data/n", "value": "2"}] * 10001
    done = admin.patch(path, operations, form=JSON_PATCH)
    assert done.status == 413
    assert done.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got "
        "10001"
    )


# --- strategic merge patch ----------------------------------------------------------------------


@pytest.fixture
def pod(admin: kube_servers.Http, namespace: str) -> str:
    """Path of a Pod with two containers that no node runs."""
    collection = f"/api/v1/namespaces/{namespace}/pods"
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": containers, "nodeSelector": {"no": "where"}},
    }
    admin.post(collection, body).ok()
    return f"{collection}/p"


def test_strategic_merge_merges_lists_by_key(admin: kube_servers.Http, pod: str) -> None:
    """containers by name; the order stays."""
    done = admin.patch(
        pod, {"spec": {"containers": [{"name": "b", "image": "z"}]}}, form=STRATEGIC
    ).ok()
    assert [(c["name"], c["image"]) for c in done["spec"]["containers"]] == [
        ("a", "x"),
        ("b", "z"),
    ]


def test_merge_patch_replaces_lists(admin: kube_servers.Http, pod: str) -> None:
    """A merge patch of one container drops the other, which a Pod refuses."""
    done = admin.patch(pod, {"spec": {"containers": [{"name": "b", "image": "z"}]}}, form=MERGE)
    assert done.status == 422
    assert "spec.containers: Forbidden: pod updates may not add or remove containers" in (
        done.message
    )


def test_strategic_merge_merges_conditions_by_type(admin: kube_servers.Http, pod: str) -> None:
    def types(form: str, type_: str) -> list[str]:
        condition = {"type": type_, "status": "True"}
        done = admin.patch(f"{pod}/status", {"status": {"conditions": [condition]}}, form=form)
        return [c["type"] for c in done.ok()["status"]["conditions"] if c["type"].startswith("x")]

    assert types(STRATEGIC, "x/One") == ["x/One"]
    assert sorted(types(STRATEGIC, "x/Two")) == ["x/One", "x/Two"]
    assert types(MERGE, "x/Three") == ["x/Three"]


def test_strategic_merge_directives(admin: kube_servers.Http, pod: str) -> None:
    """$patch: delete and replace, $deleteFromPrimitiveList."""
    admin.patch(
        pod, {"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["a.b/c", "a.b/d"]}}
    ).ok()
    done = admin.patch(
        pod,
        {
            "metadata": {
                "labels": {"$patch": "replace", "c": "3"},
                "$deleteFromPrimitiveList/finalizers": ["a.b/c"],
            }
        },
        form=STRATEGIC,
    ).ok()
    assert done["metadata"]["labels"] == {"c": "3"}
    assert done["metadata"]["finalizers"] == ["a.b/d"]
    gone = admin.patch(pod, {"metadata": {"labels": {"$patch": "delete"}}}, form=STRATEGIC).ok()
    assert "labels" not in gone["metadata"]
    admin.patch(pod, {"metadata": {"finalizers": None}}).ok()


def test_strategic_merge_of_custom_kind_is_unsupported(
    admin: kube_servers.Http, namespace: str
) -> None:
    path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{namespace}/taskobjects"
    admin.post(
        path,
        {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "TaskObject",
            "metadata": {"name": "t"},
            "data": {},
        },
    ).ok()
    done = admin.patch(f"{path}/t", {}, form=STRATEGIC)
    assert done.status == 415
    assert done.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
