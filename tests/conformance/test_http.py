"""The HTTP around the objects: methods, media types, forms of responses, unknown paths."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from support import kube_servers

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/tasks"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
NOT_FOUND = "the server could not find the requested resource"
ROOT_CA = "kube-root-ca.crt"


def status(code: int, reason: str, message: str, **more: Any) -> dict[str, Any]:
    found = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**found, "message": message, "reason": reason, **more, "code": code}


def test_missing_object_returns_status(admin: kube_servers.Http, namespace: str) -> None:
    """The Status in its order of fields, with a line end."""
    response = admin.get(f"{CONFIG_MAPS.format(namespace)}/x")
    assert response.body == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"configmaps \\"x\\" not found","reason":"NotFound",'
        b'"details":{"name":"x","kind":"configmaps"},"code":404}\n'
    )
    custom = admin.get(f"{TASKS.format(namespace)}/x")
    details = {"name": "x", "group": "kilnwork.dev", "kind": "tasks"}
    message = 'tasks.kilnwork.dev "x" not found'
    assert custom.json == status(404, "NotFound", message, details=details)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "{}/" + ROOT_CA),
        ("PUT", "{}"),
        ("PATCH", "{}"),
        ("OPTIONS", "{}"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("PUT", "/api/v1/namespaces"),
        ("POST", "{}/" + ROOT_CA + "/../../pods/x/log"),
    ],
)
def test_unsupported_methods_are_not_allowed(
    admin: kube_servers.Http, namespace: str, method: str, path: str
) -> None:
    target = path.format(CONFIG_MAPS.format(namespace)).replace(f"{ROOT_CA}/../../", "../")
    target = target.replace("configmaps/../", "")
    body: Any = None if method in ("DELETE", "OPTIONS") else {}
    response = admin.send(method, target, body)
    assert response.json == status(405, "MethodNotAllowed", NOT_ALLOWED, details={})


def test_head_is_not_allowed_for_objects(admin: kube_servers.Http, namespace: str) -> None:
    """405 without a body, for lists, objects and what is not there."""
    for path in ("", f"/{ROOT_CA}", "/x"):
        response = admin.send("HEAD", CONFIG_MAPS.format(namespace) + path)
        assert (response.status, response.body) == (405, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{}/nothings",
        "/api/v1/nothings",
        "/api/v1/namespaces/{}/configmaps/" + ROOT_CA + "/status",
        "/api/v1/namespaces/{}/configmaps/" + ROOT_CA + "/scale",
        "/api/v1/configmaps/" + ROOT_CA,
        "/api/v1/namespaces/{}/nodes",
        "/api/v2",
        "/apis/rbac.authorization.k8s.io/v1/nothings",
    ],
)
def test_unknown_resource_path_is_not_found(
    admin: kube_servers.Http, namespace: str, path: str
) -> None:
    """404 with empty details in groups that are built in."""
    response = admin.get(path.format(namespace))
    assert response.json == status(404, "NotFound", NOT_FOUND, details={})


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/apis/nope.example.com",
        "/apis/nope.example.com/v1",
        "/apis/nope.example.com/v1/things",
        "/apis/nope.example.com/v1/namespaces/default/things/x",
        "/apis/kilnwork.dev/v9/tasks",
        "/apis/kilnwork.dev/v1alpha1/nothings",
    ],
)
def test_unknown_api_path_is_plain_text_not_found(admin: kube_servers.Http, path: str) -> None:
    """Plain text from the router, where no group claims the path."""
    response = admin.get(path)
    assert (response.status, response.body) == (404, b"404 page not found\n")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", [CONFIG_MAPS, f"{CONFIG_MAPS}/{ROOT_CA}", f"{CONFIG_MAPS}/none"])
def test_unsupported_accept_for_built_in_kinds(
    admin: kube_servers.Http, namespace: str, path: str
) -> None:
    """406 before anything else is looked at, in words of the router."""
    response = admin.get(path.format(namespace), headers={"Accept": "text/html"})
    assert (response.status, response.reason) == (406, "NotAcceptable")
    begin = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
    assert response.message.startswith(begin)
    assert response.json["details"] == {}


def test_unsupported_accept_for_custom_kinds(admin: kube_servers.Http, namespace: str) -> None:
    response = admin.get(TASKS.format(namespace), headers={"Accept": "text/html"})
    assert (response.status, response.reason) == (406, "NotAcceptable")
    assert response.message.startswith(
        "only the following media types are accepted: application/json, application/yaml"
    )


@pytest.mark.parametrize("form", ["as=Table;v=v9;g=meta.k8s.io", "as=Nothing;v=v1;g=meta.k8s.io"])
def test_unknown_formats_are_not_acceptable(
    admin: kube_servers.Http, namespace: str, form: str
) -> None:
    """406, unless something else is taken too."""
    path = CONFIG_MAPS.format(namespace)
    response = admin.get(path, headers={"Accept": f"application/json;{form}"})
    assert response.status == 406
    assert response.message.startswith("only the following media types are accepted: ")
    both = admin.get(path, headers={"Accept": f"application/json;{form},application/json"})
    assert both.ok()["kind"] == "ConfigMapList"


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html,*/*", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/json;q=0.5,application/yaml", "application/yaml"),
        ("application/json,application/yaml", "application/json"),
    ],
)
@pytest.mark.parametrize("path", [f"{CONFIG_MAPS}/{ROOT_CA}", CONFIG_MAPS, f"{TASKS}/none"])
def test_response_is_json_or_yaml_as_accepted(
    admin: kube_servers.Http, namespace: str, path: str, accept: str, media: str
) -> None:
    """As the client likes, for objects, lists and refusals; the same document in both."""
    response = admin.get(path.format(namespace), headers={"Accept": accept})
    assert response.headers["Content-Type"] == media
    expected = admin.get(path.format(namespace)).json
    decoded = response.json if media.endswith("json") else msgspec.yaml.decode(response.body)
    if "items" in expected:  # others write elsewhere meanwhile
        assert decoded["metadata"].pop("resourceVersion")
        assert expected["metadata"].pop("resourceVersion")
    assert decoded == expected


@pytest.mark.parametrize(
    ("query", "agent", "indented"),
    [
        ({}, "kubectl/v1", False),
        ({"pretty": "true"}, "kubectl/v1", True),
        ({"pretty": "1"}, "kubectl/v1", True),
        ({}, "curl/8.0", True),
        ({}, "Mozilla/5.0 (X11)", True),
        ({"pretty": "false"}, "curl/8.0", False),
        ({"pretty": "no"}, "curl/8.0", False),
    ],
)
def test_curl_and_browsers_get_indented_json(
    admin: kube_servers.Http, namespace: str, query: dict[str, str], agent: str, *, indented: bool
) -> None:
    """By `pretty`, else by the user agent; refusals too."""
    for name in (ROOT_CA, "none"):
        path = f"{CONFIG_MAPS.format(namespace)}/{name}"
        response = admin.get(path, headers={"User-Agent": agent}, **query)
        assert response.body.startswith(b'{\n  "' if indented else b'{"')


def test_large_responses_are_compressed_if_accepted(
    admin: kube_servers.Http, namespace: str
) -> None:
    path = CONFIG_MAPS.format(namespace)
    big = {"metadata": {"name": "big", "labels": {"only": "this"}}, "data": {"a": "x" * 200_000}}
    admin.post(path, big).ok()
    taken = {"Accept-Encoding": "gzip"}
    for target, named in ((path, {"labelSelector": "only=this"}), (f"{path}/big", {})):
        response = admin.get(target, headers=taken, **named)
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept-Encoding"
        # A list also has the version of the whole store, in which others write meanwhile.
        found, plain = json.loads(gzip.decompress(response.body)), admin.get(target, **named).ok()
        assert {**found, "metadata": 0} == {**plain, "metadata": 0}
    assert admin.get(f"{path}/{ROOT_CA}", headers=taken).headers["Content-Encoding"] is None


def test_responses_are_not_to_be_cached(admin: kube_servers.Http, namespace: str) -> None:
    for name in (ROOT_CA, "none"):
        response = admin.get(f"{CONFIG_MAPS.format(namespace)}/{name}")
        assert response.headers["Cache-Control"] == "no-cache, private"


def test_request_body_size_is_limited(admin: kube_servers.Http, namespace: str) -> None:
    """3 MiB of request; what a kind allows is less."""
    body = {"metadata": {"name": "big"}, "data": {"a": "x" * (4 << 20)}}
    response = admin.post(CONFIG_MAPS.format(namespace), body)
    message = "Request entity too large: limit is 3145728"
    assert response.json == status(413, "RequestEntityTooLarge", message)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("POST", "Create"), ("PUT", "Update"), ("PATCH", "Patch"), ("DELETE", "Delete")],
)
def test_invalid_write_options_are_listed(
    admin: kube_servers.Http, namespace: str, verb: str, kind: str
) -> None:
    """422 that names the options, and says every reason."""
    path = CONFIG_MAPS.format(namespace) + ("" if verb == "POST" else f"/{ROOT_CA}")
    headers = {"Content-Type": kube_servers.MERGE} if verb == "PATCH" else None
    body = None if verb == "DELETE" else {"metadata": {"name": ROOT_CA}}
    response = admin.send(verb, path, body, headers=headers, dryRun="Some")
    message = 'Unsupported value: []string{"Some"}: supported values: "All"'
    cause = {"reason": "FieldValueNotSupported", "message": message, "field": "dryRun"}
    assert response.json == status(
        422,
        "Invalid",
        f'{kind}Options.meta.k8s.io "" is invalid: dryRun: {message}',
        details={"group": "meta.k8s.io", "kind": f"{kind}Options", "causes": [cause]},
    )


def test_all_problems_of_options_are_listed(admin: kube_servers.Http, namespace: str) -> None:
    known = '"", "Ignore", "Strict", "Warn"'
    query = {"dryRun": "Some", "fieldManager": "x" * 129, "fieldValidation": "Maybe"}
    response = admin.post(CONFIG_MAPS.format(namespace), {"metadata": {"name": "x"}}, **query)
    assert [f"{c['field']}: {c['message']}" for c in response.json["details"]["causes"]] == [
        "fieldManager: Too long: may not be more than 128 bytes",
        'dryRun: Unsupported value: []string{"Some"}: supported values: "All"',
        f'fieldValidation: Unsupported value: "Maybe": supported values: {known}',
    ]


def test_health_paths_need_no_credential(server: kube_servers.Server) -> None:
    """Any client may ask how the server is."""
    with server.bearer(None) as anonymous:
        for path in ("/healthz", "/readyz", "/livez"):
            response = anonymous.get(path)
            assert (response.status, response.body) == (200, b"ok")
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert anonymous.get("/version").ok()["major"] == "1"


def test_unknown_token_is_unauthorized(server: kube_servers.Server) -> None:
    """401, and nothing is said about why."""
    with server.bearer("nonsense") as anonymous:
        response = anonymous.get("/api/v1/pods")
        assert response.json == status(401, "Unauthorized", "Unauthorized")


def test_anonymous_user_is_forbidden(server: kube_servers.Server) -> None:
    """Who shows nothing is `system:anonymous`, and may do nothing."""
    with server.bearer(None) as anonymous:
        listed = anonymous.get("/api/v1/namespaces/default/pods")
        assert listed.json == status(
            403,
            "Forbidden",
            'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group '
            '"" in the namespace "default"',
            details={"kind": "pods"},
        )
        assert anonymous.get("/api").json == status(
            403,
            "Forbidden",
            'forbidden: User "system:anonymous" cannot get path "/api"',
            details={},
        )


def test_root_lists_the_paths(admin: kube_servers.Http) -> None:
    paths = admin.get("/").ok()["paths"]
    wanted = {"/api", "/api/v1", "/apis", "/apis/", "/apis/rbac.authorization.k8s.io/v1"}
    assert wanted | {"/healthz", "/openapi/v2", "/openapi/v3", "/version"} <= set(paths)
    assert paths == sorted(paths)


def test_connection_is_reused_after_errors(admin: kube_servers.Http, namespace: str) -> None:
    """Refusals do not close it either."""
    connection = admin.connect()
    try:
        for path in (f"/{ROOT_CA}", "/none", "?limit=x", ""):
            headers = dict(admin.headers)
            connection.request("GET", CONFIG_MAPS.format(namespace) + path, headers=headers)
            sock = connection.sock
            assert connection.getresponse().read()
            assert connection.sock is sock
    finally:
        connection.close()


@pytest.mark.parametrize("query", ["limit=1;x=2", "labelSelector=%zz", "labelSelector=%f"])
def test_malformed_query_pairs_are_ignored(
    admin: kube_servers.Http, namespace: str, query: str
) -> None:
    listed = admin.get(f"{CONFIG_MAPS.format(namespace)}?{query}").ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == [ROOT_CA]


def test_impossible_names_are_rejected(admin: kube_servers.Http, namespace: str) -> None:
    """What leads elsewhere in a path is refused; what is only no name is not found."""
    response = admin.get(f"{CONFIG_MAPS.format(namespace)}/..")
    assert (response.status, response.message) == (
        400,
        "Name parameter invalid: \"..\": may not be '..'",
    )
    response = admin.get(f"{CONFIG_MAPS.format(namespace)}/UPPER_x")
    assert response.message == 'configmaps "UPPER_x" not found'


def test_missing_namespace_is_empty_and_read_only(admin: kube_servers.Http) -> None:
    """Nothing is in them, and nothing can be put there."""
    path = CONFIG_MAPS.format("nope")
    assert admin.get(path).ok()["items"] == []
    assert admin.get(f"{path}/x").message == 'configmaps "x" not found'
    response = admin.post(path, {"metadata": {"name": "x"}})
    details = {"name": "nope", "kind": "namespaces"}
    message = 'namespaces "nope" not found'
    assert response.json == status(404, "NotFound", message, details=details)


def test_chunked_body_is_accepted(admin: kube_servers.Http, namespace: str) -> None:
    """With a transfer encoding instead of a length."""
    connection = admin.connect()
    try:
        headers = {**admin.headers, "Content-Type": "application/json; charset=utf-8"}
        pieces = (piece for piece in (b'{"metadata":', b'{"name":"x"}}'))
        connection.request(
            "POST", CONFIG_MAPS.format(namespace), body=pieces, headers=headers, encode_chunked=True
        )
        assert connection.getresponse().status == 201
    finally:
        connection.close()


def test_protobuf_body_is_accepted(admin: kube_servers.Http, namespace: str) -> None:
    """As typed Go clients send them, who take JSON back."""

    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    entry = field(1, b"key") + field(2, b"value")
    raw = field(1, field(1, b"made")) + field(2, entry)
    body = b"k8s\0" + field(1, field(1, b"v1") + field(2, b"ConfigMap")) + field(2, raw)
    media = "application/vnd.kubernetes.protobuf"
    headers = {"Content-Type": media, "Accept": f"{media};q=0.5, application/json"}
    made = admin.post(CONFIG_MAPS.format(namespace), body, headers=headers).ok()
    assert (made["metadata"]["name"], made["data"]) == ("made", {"key": "value"})
    broken = admin.post(CONFIG_MAPS.format(namespace), b"k8s\0\x0a\xff", headers=headers)
    assert (broken.status, broken.reason) == (400, "BadRequest")
