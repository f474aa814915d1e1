"""Creating objects: names, what the server sets, dry-run, unknown and doubled fields."""

import json
import re
from typing import Any

import pytest

from support import kube_servers

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_create_returns_uid_version_and_timestamp(admin: kube_servers.Http, namespace: str) -> None:
    """201 with kind, apiVersion, uid, resourceVersion and creationTimestamp filled in."""
    made = admin.post(config_maps(namespace), {"metadata": {"name": "a"}, "data": {"x": "y"}})
    assert made.status == 201
    assert made.json["kind"] == "ConfigMap"
    assert made.json["apiVersion"] == "v1"
    assert made.json["data"] == {"x": "y"}
    metadata = made.json["metadata"]
    assert metadata["namespace"] == namespace
    assert int(metadata["resourceVersion"]) > 0
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert admin.get(f"{config_maps(namespace)}/a").json == made.json


def test_existing_name_is_a_conflict(admin: kube_servers.Http, namespace: str) -> None:
    """409 AlreadyExists names the resource."""
    body = {"metadata": {"name": "a"}}
    admin.post(config_maps(namespace), body).ok()
    again = admin.post(config_maps(namespace), body)
    assert again.status == 409
    assert again.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


def test_server_set_metadata_is_ignored(admin: kube_servers.Http, namespace: str) -> None:
    """uid, creationTimestamp, deletionTimestamp and its grace are dropped without a word."""
    given = {
        "name": "a",
        "uid": "mine",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 3,
        "selfLink": "/mine",
    }
    made = admin.post(config_maps(namespace), {"metadata": given}).ok()["metadata"]
    assert made["uid"] != "mine"
    assert not made["creationTimestamp"].startswith("2020")
    assert made.keys().isdisjoint({"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"})


def test_resource_version_is_rejected(admin: kube_servers.Http, namespace: str) -> None:
    """500 without a reason: the store finds it."""
    made = admin.post(config_maps(namespace), {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert made.status == 500
    assert made.message == "resourceVersion should not be set on objects to be created"


def test_generate_name_appends_five_letters(admin: kube_servers.Http, namespace: str) -> None:
    """The prefix stays in the object beside the name."""
    drawn = set()
    for _ in range(5):
        made = admin.post(config_maps(namespace), {"metadata": {"generateName": "g-"}}).ok()
        assert made["metadata"]["generateName"] == "g-"
        drawn.add(made["metadata"]["name"])
    assert len(drawn) == 5
    assert all(re.fullmatch("g-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in drawn)


def test_generated_name_is_truncated_to_63_characters(
    admin: kube_servers.Http, namespace: str
) -> None:
    """58 characters of the prefix are used."""
    prefix = "p" * 80
    made = admin.post(config_maps(namespace), {"metadata": {"generateName": prefix}}).ok()
    assert made["metadata"]["name"][:58] == "p" * 58
    assert len(made["metadata"]["name"]) == 63


def test_name_overrides_generate_name(admin: kube_servers.Http, namespace: str) -> None:
    body = {"metadata": {"name": "a", "generateName": "g-"}}
    assert admin.post(config_maps(namespace), body).ok()["metadata"]["name"] == "a"


@pytest.mark.parametrize("body", [{}, {"metadata": {}}, None], ids=["empty", "metadata", "null"])
def test_missing_name_is_invalid(admin: kube_servers.Http, namespace: str, body: Any) -> None:
    """422 with one cause, at metadata.name; `null` is as good as an empty object."""
    made = admin.post(config_maps(namespace), json.dumps(body))
    assert made.status == 422
    assert made.json["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


def test_malformed_name_is_invalid(admin: kube_servers.Http, namespace: str) -> None:
    """422; text, details and cause say the same."""
    made = admin.post(config_maps(namespace), {"metadata": {"name": "A_b"}})
    assert made.status == 422
    problem = f'Invalid value: "A_b": {SUBDOMAIN}'
    assert made.message == f'ConfigMap "A_b" is invalid: metadata.name: {problem}'
    assert made.json["details"] == {
        "name": "A_b",
        "kind": "ConfigMap",
        "causes": [{"reason": "FieldValueInvalid", "message": problem, "field": "metadata.name"}],
    }


def test_malformed_labels_are_invalid(admin: kube_servers.Http, namespace: str) -> None:
    """Key and value each have a cause at metadata.labels."""
    made = admin.post(config_maps(namespace), {"metadata": {"name": "c", "labels": {"-a": "b c"}}})
    assert made.status == 422
    causes = made.json["details"]["causes"]
    assert [c["field"] for c in causes] == ["metadata.labels", "metadata.labels"]
    assert causes[0]["message"] == (
        "Invalid value: \"-a\": name part must consist of alphanumeric characters, '-', '_' or "
        "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
        "'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )
    assert causes[1]["message"].startswith(
        'Invalid value: "b c": a valid label must be an empty string or consist of '
    )


def test_unqualified_finalizer_is_invalid(admin: kube_servers.Http, namespace: str) -> None:
    """A finalizer without a domain is refused by core kinds, at its place in the list."""
    made = admin.post(
        config_maps(namespace), {"metadata": {"name": "c", "finalizers": ["nodomain"]}}
    )
    assert made.status == 422
    assert made.json["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "nodomain": name is neither a standard finalizer name nor '
            "is it fully qualified",
            "field": "metadata.finalizers[0]",
        }
    ]


def test_incomplete_owner_reference_is_invalid(admin: kube_servers.Http, namespace: str) -> None:
    """The causes do not say which of several references is meant."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = admin.post(
        config_maps(namespace), {"metadata": {"name": "c", "ownerReferences": [owner]}}
    )
    assert made.status == 422
    assert [(c["field"], c["message"]) for c in made.json["details"]["causes"]] == [
        ("metadata.ownerReferences.name", 'Invalid value: "": name must not be empty'),
        ("metadata.ownerReferences.uid", 'Invalid value: "": uid must not be empty'),
    ]


def test_malformed_config_map_keys_are_invalid(admin: kube_servers.Http, namespace: str) -> None:
    """In `data` and, when the same key is in `binaryData`, as a duplicate."""
    bad = admin.post(config_maps(namespace), {"metadata": {"name": "c"}, "data": {"a b": "x"}})
    assert bad.message == (
        'ConfigMap "c" is invalid: data[a b]: Invalid value: "a b": a valid config key must '
        "consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
        "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )
    both = {"metadata": {"name": "c"}, "data": {"a": "x"}, "binaryData": {"a": "eA=="}}
    twice = admin.post(config_maps(namespace), both)
    assert twice.message == (
        'ConfigMap "c" is invalid: data[a]: Invalid value: "a": duplicate of key present in '
        "binaryData"
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"metadata": {"name": "c"}, "data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            {"metadata": {"name": "c"}, "data": []},
            (
                "json: cannot unmarshal array into Go struct field ConfigMap.data of type "
                "map[string]string"
            ),
        ),
        (
            {"metadata": {"name": 5}},
            (
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of "
                "type string"
            ),
        ),
        (
            {"metadata": {"name": "c", "labels": {"a": 1}}},
            (
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of "
                "type string"
            ),
        ),
        (
            {"metadata": []},
            (
                "json: cannot unmarshal array into Go struct field ConfigMap.metadata of type "
                "v1.ObjectMeta"
            ),
        ),
        (
            {"metadata": {"name": "c", "finalizers": [{}]}},
            (
                "json: cannot unmarshal object into Go struct field ObjectMeta.metadata.finalizers "
                "of type string"
            ),
        ),
        (
            {"metadata": {"name": "c", "ownerReferences": ["a"]}},
            (
                "json: cannot unmarshal string into Go struct field "
                "ObjectMeta.metadata.ownerReferences of type v1.OwnerReference"
            ),
        ),
    ],
    ids=["number", "list", "name", "label", "metadata", "text in a list", "item of a list"],
)
def test_wrong_types_are_bad_requests(
    admin: kube_servers.Http, namespace: str, body: Any, text: str
) -> None:
    """400 in the words of Go's JSON decoder."""
    made = admin.post(config_maps(namespace), body)
    assert made.status == 400
    assert made.reason == "BadRequest"
    begin = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
    assert made.message == begin + text


@pytest.mark.parametrize(
    ("body", "begin"),
    [
        (
            {"kind": "Secret", "metadata": {"name": "c"}},
            'Secret in version "v1" cannot be handled as a ConfigMap: ',
        ),
        (
            {"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "c"}},
            'ConfigMap in version "v2" cannot be handled as a ConfigMap: ',
        ),
    ],
    ids=["kind", "version"],
)
def test_body_of_another_kind_is_a_bad_request(
    admin: kube_servers.Http, namespace: str, body: Any, begin: str
) -> None:
    """400 says what was found and what the path takes."""
    made = admin.post(config_maps(namespace), body)
    assert made.status == 400
    assert made.message.startswith(begin)


def test_the_namespace_of_body_and_path_must_agree(
    admin: kube_servers.Http, namespace: str
) -> None:
    made = admin.post(config_maps(namespace), {"metadata": {"name": "c", "namespace": "other"}})
    assert made.status == 400
    assert made.message == (
        "the namespace of the provided object does not match the namespace sent on the request"
    )


def test_missing_namespace_is_not_found(admin: kube_servers.Http) -> None:
    """404 of the namespace, not of the resource."""
    made = admin.post(config_maps("no-such-namespace"), {"metadata": {"name": "c"}})
    assert made.status == 404
    assert made.message == 'namespaces "no-such-namespace" not found'
    assert made.json["details"] == {"name": "no-such-namespace", "kind": "namespaces"}


def test_yaml_body_is_accepted(admin: kube_servers.Http, namespace: str) -> None:
    """application/yaml, with a response in JSON."""
    headers = {"Content-Type": "application/yaml"}
    made = admin.post(config_maps(namespace), "metadata: {name: from-yaml}\n", headers=headers)
    assert made.ok()["metadata"]["name"] == "from-yaml"


def test_dry_run_validates_and_stores_nothing(admin: kube_servers.Http, namespace: str) -> None:
    """201 with a uid and without a resourceVersion; names are drawn; conflicts are found."""
    path = config_maps(namespace)
    made = admin.post(path, {"metadata": {"generateName": "d-"}}, dryRun="All")
    assert made.status == 201
    metadata = made.json["metadata"]
    assert "resourceVersion" not in metadata
    assert metadata["uid"]
    assert metadata["name"].startswith("d-")
    assert admin.get(f"{path}/{metadata['name']}").status == 404
    assert admin.post(path, {"metadata": {"name": "B"}}, dryRun="All").status == 422
    admin.post(path, {"metadata": {"name": "a"}}).ok()
    assert admin.post(path, {"metadata": {"name": "a"}}, dryRun="All").status == 409


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            {"dryRun": "Some"},
            'dryRun: Unsupported value: []string{"Some"}: supported values: "All"',
        ),
        (
            {"fieldValidation": "Bad"},
            (
                'fieldValidation: Unsupported value: "Bad": supported values: "", "Ignore", '
                '"Strict", "Warn"'
            ),
        ),
        ({"fieldManager": "x" * 129}, "fieldManager: Too long: may not be more than 128 bytes"),
    ],
    ids=["dryRun", "fieldValidation", "fieldManager"],
)
def test_create_options_are_validated(
    admin: kube_servers.Http, namespace: str, query: dict[str, str], text: str
) -> None:
    made = admin.post(config_maps(namespace), {"metadata": {"name": "a"}}, **query)
    assert made.status == 422
    assert made.message == f'CreateOptions.meta.k8s.io "" is invalid: {text}'
    assert made.json["details"]["group"] == "meta.k8s.io"
    assert made.json["details"]["kind"] == "CreateOptions"


UNKNOWN = {"metadata": {"name": "d", "foo": 1}, "dat": {"a": "b"}}


@pytest.mark.parametrize("level", ["", "Warn"])
def test_unknown_fields_are_dropped_with_a_warning(
    admin: kube_servers.Http, namespace: str, level: str
) -> None:
    """Warn is the default; one warning for each field, with its path."""
    made = admin.post(config_maps(namespace), UNKNOWN, fieldValidation=level)
    assert made.status == 201
    assert "dat" not in made.json
    assert sorted(made.warnings) == [
        r'299 - "unknown field \"dat\""',
        r'299 - "unknown field \"metadata.foo\""',
    ]


def test_unknown_fields_can_be_ignored(admin: kube_servers.Http, namespace: str) -> None:
    made = admin.post(config_maps(namespace), UNKNOWN, fieldValidation="Ignore")
    assert made.status == 201
    assert "dat" not in made.json
    assert made.warnings == []


def test_strict_validation_rejects_unknown_fields(admin: kube_servers.Http, namespace: str) -> None:
    made = admin.post(config_maps(namespace), UNKNOWN, fieldValidation="Strict")
    assert made.status == 400
    begin, _, listed = made.message.partition("strict decoding error: ")
    assert begin == 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
    assert sorted(listed.split(", ")) == [
        'unknown field "dat"',
        'unknown field "metadata.foo"',
    ]


def test_unknown_fields_in_lists_have_positions(admin: kube_servers.Http, namespace: str) -> None:
    """Paths go through lists by position."""
    container = {"name": "a", "image": "b", "foo": 1, "env": [{"name": "x", "valu": "y"}]}
    pod = {"metadata": {"name": "d"}, "spec": {"containers": [container], "bar": {"a": 1}}}
    made = admin.post(
        f"/api/v1/namespaces/{namespace}/pods", pod, fieldValidation="Strict", dryRun="All"
    )
    assert made.status == 400
    listed = made.message.partition("strict decoding error: ")[2]
    assert sorted(listed.split(", ")) == [
        'unknown field "spec.bar"',
        'unknown field "spec.containers[0].env[0].valu"',
        'unknown field "spec.containers[0].foo"',
    ]


DOUBLED = '{"metadata":{"name":"d"},"data":{"a":"b","a":"c"},"data":{}}'


def test_duplicate_fields_give_warnings(admin: kube_servers.Http, namespace: str) -> None:
    """The last one counts; objects given twice are merged."""
    made = admin.post(config_maps(namespace), DOUBLED)
    assert made.status == 201
    assert made.json["data"] == {"a": "c"}
    assert made.warnings == [
        r'299 - "duplicate field \"data.a\""',
        r'299 - "duplicate field \"data\""',
    ]


def test_strict_validation_rejects_duplicate_fields(
    admin: kube_servers.Http, namespace: str
) -> None:
    made = admin.post(config_maps(namespace), DOUBLED, fieldValidation="Strict")
    assert made.status == 400
    assert made.message == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "data.a", duplicate field "data"'
    )


def test_field_names_are_case_sensitive(admin: kube_servers.Http, namespace: str) -> None:
    """Another case is another field."""
    made = admin.post(config_maps(namespace), {"Metadata": {"name": "d"}}, fieldValidation="Strict")
    assert made.status == 400
    assert made.message.endswith('strict decoding error: unknown field "Metadata"')
