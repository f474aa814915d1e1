"""Fields that come twice: refused by Strict, warned of by Warn, wherever a body is read."""

import json
from typing import Any

import pytest

from support import kube_servers, waiting

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "numbers.duplicates.example.com"},
    "spec": {
        "group": "duplicates.example.com",
        "scope": "Namespaced",
        "names": {"plural": "numbers", "kind": "Number", "singular": "number"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for name in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def definition(admin: kube_servers.Http) -> None:
    """Custom objects whose spec and status may hold anything."""
    response = admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    assert response.status in (201, 409)
    path = "/apis/duplicates.example.com/v1/numbers"
    waiting.wait_until(lambda: admin.get(path).status == 200, what="it is served")


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def numbers(definition: None, namespace: str) -> str:
    return f"/apis/duplicates.example.com/v1/namespaces/{namespace}/numbers"


def warnings_of(response: kube_servers.Response) -> list[str]:
    """The texts of its warnings; it must be a success."""
    response.ok()
    return [text.removeprefix('299 - "')[:-1].replace('\\"', '"') for text in response.warnings]


def number(name: str, spec: str, **metadata: Any) -> str:
    """A custom object whose spec is written as given."""
    head = json.dumps({"name": name, **metadata})
    return f'{{"apiVersion":"duplicates.example.com/v1","kind":"Number","metadata":{head},{spec}}}'


@pytest.mark.parametrize(
    ("spec", "paths", "kept"),
    [
        ('"spec":{"a":1,"a":2}', ["spec.a"], {"a": 2}),
        # As long as what is kept of it: the number is written longer there.
        ('"spec":{"a":1,"a":1,"x":1e6}', ["spec.a"], {"a": 1, "x": 1000000}),
        ('"spec":{"l":[{"b":{"c":1,"c":2}}]}', ["spec.l[0].b.c"], {"l": [{"b": {"c": 2}}]}),
        ('"spec":{"a":{"x":1},"a":{"y":1}}', ["spec.a"], {"a": {"y": 1}}),
        ('"spec":{"a":1},"spec":{"b":1}', ["spec"], {"b": 1}),
        ('"spec":{"a":1,"\\u0061":2}', ["spec.a"], {"a": 2}),
    ],
)
def test_duplicates_in_custom_objects(
    admin: kube_servers.Http, numbers: str, spec: str, paths: list[str], kept: dict[str, Any]
) -> None:
    """The last one counts, of maps too."""
    texts = [f'duplicate field "{path}"' for path in paths]
    body = number("n", spec)
    strict = admin.send("POST", numbers, body, headers=JSON, fieldValidation="Strict")
    assert (strict.status, strict.message) == (
        400,
        'Number in version "v1" cannot be handled as a Number: strict decoding error: '
        + ", ".join(texts),
    )
    ignored = admin.send(
        "POST", numbers, body, headers=JSON, fieldValidation="Ignore", dryRun="All"
    )
    assert warnings_of(ignored) == []
    made = admin.send("POST", numbers, body, headers=JSON, fieldValidation="Warn")
    assert warnings_of(made) == texts
    assert made.json["spec"] == kept


def test_duplicates_in_yaml(admin: kube_servers.Http, config_maps: str) -> None:
    """Lines, as go-yaml tells them; the last one counts."""
    body = (
        "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: twice\n  labels:\n    x: '1'\n"
        "    x: '2'\ndata:\n  a: '1'\n  a: '2'\ndata:\n  b: '1'\nfoo: 1\n"
    )
    lines = [
        'line 7: key "x" already set in map',
        'line 10: key "a" already set in map',
        'line 12: key "data" already set in map',
    ]
    strict = admin.send("POST", config_maps, body, headers=YAML, fieldValidation="Strict")
    assert (strict.status, strict.message) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        + "\n  ".join(["yaml: unmarshal errors:", *lines])
        + ', unknown field "foo"',
    )
    made = admin.send("POST", config_maps, body, headers=YAML)
    assert warnings_of(made) == [*lines, 'unknown field "foo"']
    assert made.json["data"] == {"b": "1"}


def test_duplicates_in_one_line_yaml(admin: kube_servers.Http, numbers: str) -> None:
    """Also of custom objects; numbers as keys are other keys than texts."""
    body = (
        "{kind: Number, apiVersion: duplicates.example.com/v1, metadata: {name: twice}, "
        "spec: {a: 1, a: 2, '1': x}}"
    )
    strict = admin.send("POST", numbers, body, headers=YAML, fieldValidation="Strict")
    assert (strict.status, strict.message) == (
        400,
        (
            'Number in version "v1" cannot be handled as a Number: strict decoding error: '
            'yaml: unmarshal errors:\n  line 1: key "a" already set in map'
        ),
    )
    made = admin.send("POST", numbers, body, headers=YAML)
    assert warnings_of(made) == ['line 1: key "a" already set in map']


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_duplicates_in_apply_patches(admin: kube_servers.Http, config_maps: str, form: str) -> None:
    body = {
        "json": (
            '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"p"},'
            '"data":{"a":"1","a":"2"}}'
        ),
        "yaml": (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  a: '1'\n  a: '2'\n"
        ),
    }[form]
    line = 1 if form == "json" else 6
    text = f'line {line}: key "a" already set in map'
    path = f"{config_maps}/p"
    query: dict[str, Any] = {"headers": APPLY, "fieldManager": "m"}
    strict = admin.send("PATCH", path, body, fieldValidation="Strict", **query)
    assert (strict.status, strict.message) == (
        400,
        (
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
            f"  {text}"
        ),
    )
    assert warnings_of(admin.send("PATCH", path, body, fieldValidation="Ignore", **query)) == []
    made = admin.send("PATCH", path, body, **query)
    assert warnings_of(made) == [text]
    assert made.json["data"] == {"a": "2"}


@pytest.mark.parametrize("field", ["data", "spec"])
def test_duplicates_in_merge_patches(
    admin: kube_servers.Http, config_maps: str, numbers: str, field: str
) -> None:
    """Here the last one counts for built-in kinds too."""
    custom = field == "spec"
    where = numbers if custom else config_maps
    kind = {"apiVersion": "duplicates.example.com/v1", "kind": "Number"} if custom else {}
    admin.post(where, {**kind, "metadata": {"name": "m"}}).ok()
    body = f'{{"{field}":{{"a":"1"}},"{field}":{{"b":"1"}}}}'
    strict = admin.send("PATCH", f"{where}/m", body, headers=MERGE, fieldValidation="Strict")
    assert strict.status == 422
    assert strict.message.endswith(f'strict decoding error: duplicate field "{field}"')
    done = admin.send("PATCH", f"{where}/m", body, headers=MERGE)
    assert warnings_of(done) == [f'duplicate field "{field}"']
    assert done.json[field] == {"b": "1"}


POSTED = {
    "SelfSubjectAccessReview": (
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "authorization.k8s.io/v1",
        '"resourceAttributes":{"verb":"get","verb":"list","resource":"pods"}',
        "resourceAttributes.verb",
    ),
    "TokenRequest": (
        "/api/v1/namespaces/{}/serviceaccounts/default/token",
        "authentication.k8s.io/v1",
        '"expirationSeconds":700,"expirationSeconds":800',
        "expirationSeconds",
    ),
}


@pytest.mark.parametrize("kind", POSTED)
def test_duplicates_in_bodies_that_are_not_stored(
    admin: kube_servers.Http, namespace: str, kind: str
) -> None:
    path, version, spec, field = POSTED[kind]
    path = path.format(namespace)
    body = f'{{"kind":"{kind}","apiVersion":"{version}","spec":{{{spec}}}}}'
    strict = admin.send("POST", path, body, headers=JSON, fieldValidation="Strict")
    assert (strict.status, strict.message) == (
        400,
        (
            f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: '
            f'duplicate field "spec.{field}"'
        ),
    )
    made = admin.send("POST", path, body, headers=JSON)
    assert warnings_of(made) == [f'duplicate field "spec.{field}"']


def test_duplicates_in_scales(admin: kube_servers.Http, numbers: str, namespace: str) -> None:
    """Warned of; the status alike."""
    admin.send("POST", numbers, number("s", '"spec":{"replicas":1}'), headers=JSON).ok()
    scale = (
        f'{{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{{"name":"s",'
        f'"namespace":"{namespace}"}},"spec":{{"replicas":2,"replicas":3}}}}'
    )
    done = admin.send("PUT", f"{numbers}/s/scale", scale, headers=JSON)
    assert warnings_of(done) == ['duplicate field "spec.replicas"']
    assert done.json["spec"] == {"replicas": 3}
    strict = admin.send("PUT", f"{numbers}/s/scale", scale, headers=JSON, fieldValidation="Strict")
    assert strict.status == 400
    version = admin.get(f"{numbers}/s").json["metadata"]["resourceVersion"]
    body = number("s", '"status":{"a":1,"a":2}', resourceVersion=version)
    done = admin.send("PUT", f"{numbers}/s/status", body, headers=JSON)
    assert warnings_of(done) == ['duplicate field "status.a"']
