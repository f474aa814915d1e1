"""Label and field selectors: what they select, and how a wrong one is refused."""

from typing import Any

import pytest

from support import kube_servers

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
PODS = "/api/v1/namespaces/{}/pods"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/tasks"
NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture(scope="module")
def labelled(admin: kube_servers.Http) -> str:
    """A namespace with ConfigMaps a (x=1), b (x=2,y), c (no labels of ours) and d (x='')."""
    namespace = kube_servers.fresh_name("selected")
    admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).ok()
    labels: dict[str, dict[str, str]] = {
        "a": {"x": "1"},
        "b": {"x": "2", "y": "in"},
        "c": {},
        "d": {"x": "", "example.com/z": "Z"},
    }
    for name, found in labels.items():
        metadata = {"name": name, "labels": {"suite": "yes", **found}}
        admin.post(CONFIG_MAPS.format(namespace), {"metadata": metadata}).ok()
    return namespace


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("suite", "abcd"),
        ("x=1", "a"),
        ("x==1", "a"),
        ("x", "abd"),
        ("!x,suite", "c"),
        ("x=", "d"),
        ("x!=1,suite", "bcd"),
        ("x notin (1),suite", "bcd"),
        ("x in (1,2)", "ab"),
        ("x in ( 1 , 2 )", "ab"),
        ("x in ()", "d"),
        ("x in (,1)", "ad"),
        ("x in (1,)", "ad"),
        ("x>1", "b"),
        ("x<2", "a"),
        ("y=in", "b"),
        ("y in (in)", "b"),
        ("example.com/z=Z", "d"),
        (" x = 1 , suite ", "a"),
    ],
)
def test_label_selector_operators(
    admin: kube_servers.Http, labelled: str, selector: str, expected: str
) -> None:
    """Every operator; an absent key is not equal to anything."""
    path = CONFIG_MAPS.format(labelled)
    assert "".join(names(admin.get(path, labelSelector=selector).ok())) == expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a==b==c", "found '==', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a b", "found 'b', expected: ',' or 'end of string'"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a x b", "unable to parse requirement: found 'x', expected: in, notin, =, ==, !=, gt, lt"),
        ("a>b", f'unable to parse requirement: values[0]: Invalid value: "b": {INTEGER}'),
        ("-a=b", f'unable to parse requirement: <nil>: Invalid value: "-a": {NAME_PART}'),
    ],
)
@pytest.mark.parametrize("path", [CONFIG_MAPS, TASKS])
def test_malformed_label_selectors_are_bad_requests(
    admin: kube_servers.Http, path: str, selector: str, message: str
) -> None:
    """400 in the words of the parser, for lists and for watches."""
    for more in ({}, {"watch": "1"}):
        response = admin.get(path.format("default"), labelSelector=selector, **more)
        assert (response.status, response.reason, response.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (
            "metadata.name>3",
            "invalid selector: 'metadata.name>3'; can't understand 'metadata.name>3'",
        ),
        (r"metadata.name=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_malformed_field_selectors_are_bad_requests(
    admin: kube_servers.Http, selector: str, message: str
) -> None:
    response = admin.get(CONFIG_MAPS.format("default"), fieldSelector=selector)
    assert (response.status, response.reason, response.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            CONFIG_MAPS,
            '"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("/api/v1/namespaces/{}/serviceaccounts", None),
        (PODS, "field label not supported: data.a"),
        ("/api/v1/namespaces/{}/secrets", "field label not supported: data.a"),
        ("/api/v1/namespaces/{}/events", "field label not supported: data.a"),
        ("/api/v1/nodes", "field label not supported: data.a"),
        (TASKS, "field label not supported: data.a"),
    ],
)
def test_unsupported_field_selectors_are_bad_requests(
    admin: kube_servers.Http, path: str, message: str | None
) -> None:
    """Kinds with fields of their own say it in other words than the rest."""
    if message is None:
        known = '"metadata.name", "metadata.namespace"'
        message = f'"data.a" is not a known field selector: only {known}'
    response = admin.get(path.format("default"), fieldSelector="data.a=b")
    assert (response.status, response.reason, response.message) == (400, "BadRequest", message)


def test_field_selectors_of_pods(admin: kube_servers.Http, namespace: str) -> None:
    """Node, phase, restart policy and the rest, equal or not, several at once."""
    path = PODS.format(namespace)
    for name, policy in (("a", "Never"), ("b", "Always")):
        container = {"name": "main", "image": "localhost/none:1"}
        spec = {"containers": [container], "restartPolicy": policy, "schedulerName": "unknown"}
        admin.post(path, {"metadata": {"name": name}, "spec": spec}).ok()
    for selector, expected in (
        ("spec.restartPolicy=Never", ["a"]),
        ("spec.restartPolicy!=Never", ["b"]),
        ("status.phase=Pending", ["a", "b"]),
        ("status.phase!=Pending", []),
        ("spec.nodeName=", ["a", "b"]),
        ("spec.nodeName=,metadata.name=b", ["b"]),
        ("spec.schedulerName==unknown", ["a", "b"]),
        ("spec.serviceAccountName=default", ["a", "b"]),
        ("spec.hostNetwork=false", ["a", "b"]),
        ("spec.hostNetwork=true", []),
        ("status.podIP=", ["a", "b"]),
        ("status.nominatedNodeName=", ["a", "b"]),
        (f"metadata.namespace={namespace},spec.restartPolicy=Always", ["b"]),
    ):
        assert names(admin.get(path, fieldSelector=selector).ok()) == expected, selector


def test_field_selectors_of_events(admin: kube_servers.Http, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    for name, about in (("e1", "x"), ("e2", "y")):
        event = {
            "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "name": about, "namespace": namespace, "uid": "u"},
            "reason": "Looked",
            "type": "Normal",
            "message": "hello",
            "source": {"component": "tester"},
        }
        admin.post(path, event).ok()
    for selector, expected in (
        ("involvedObject.name=x", ["e1"]),
        ("involvedObject.kind=Pod,involvedObject.uid=u", ["e1", "e2"]),
        ("involvedObject.kind=Node", []),
        ("reason=Looked,type=Normal", ["e1", "e2"]),
        ("source=tester", ["e1", "e2"]),
        ("reportingComponent=", ["e1", "e2"]),
        ("source!=tester", []),
    ):
        assert names(admin.get(path, fieldSelector=selector).ok()) == expected, selector


def test_field_selectors_of_secrets_and_namespaces(
    admin: kube_servers.Http, namespace: str
) -> None:
    """A Secret by its type, a Namespace by its phase."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    admin.post(path, {"metadata": {"name": "s"}, "type": "example.com/x"}).ok()
    admin.post(path, {"metadata": {"name": "o"}}).ok()
    assert names(admin.get(path, fieldSelector="type=example.com/x").ok()) == ["s"]
    assert names(admin.get(path, fieldSelector="type=Opaque").ok()) == ["o"]
    active = admin.get("/api/v1/namespaces", fieldSelector="status.phase=Active").ok()
    assert namespace in names(active)


def test_field_selectors_of_a_custom_kind(admin: kube_servers.Http, namespace: str) -> None:
    """Those that its definition names (KEP-4358)."""
    path = TASKS.format(namespace)
    for name, cluster in (("t1", "one"), ("t2", "two")):
        task = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "metadata": {"name": name},
            "spec": {"command": ["true"], "clusterName": cluster},
        }
        admin.post(path, task).ok()
    assert names(admin.get(path, fieldSelector="spec.clusterName=two").ok()) == ["t2"]
    assert names(admin.get(path, fieldSelector="status.state=").ok()) == ["t1", "t2"]
