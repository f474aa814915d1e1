"""Tokens of service accounts: asked for, shown, bound to objects, over."""

import base64
import json
from typing import Any

import pytest

from support import kube_servers, waiting

Http = kube_servers.Http


@pytest.fixture
def account(admin: Http, namespace: str) -> str:
    """The path of an account `u` that may read ConfigMaps here."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    admin.post(accounts, {"metadata": {"name": "u"}}).ok()
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "u", "namespace": namespace}
    admin.post(rbac, {"metadata": {"name": "u"}, "roleRef": role, "subjects": [subject]}).ok()
    return f"{accounts}/u"


@pytest.fixture
def config_maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def ask(admin: Http, account: str, **spec: Any) -> kube_servers.Response:
    return admin.post(f"{account}/token", {"spec": spec})


def claims(token: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


def wait_until_unauthorized(server: kube_servers.Server, token: str, path: str) -> None:
    """The real server remembers tokens for some ten seconds."""
    waiting.wait_until(
        lambda: server.bearer(token).get(path).status == 401,
        what="the token is refused",
    )


def test_token_request_returns_readable_token(
    admin: Http, server: kube_servers.Server, account: str, config_maps_path: str, namespace: str
) -> None:
    """201 with the token, its end, and the audience that was chosen; its claims are readable."""
    response = ask(admin, account, expirationSeconds=600)
    assert response.status == 201
    found = response.json
    assert found["kind"] == "TokenRequest"
    assert found["spec"]["audiences"] == ["https://kubernetes.default.svc"]
    assert found["spec"]["expirationSeconds"] == 600
    assert found["status"]["expirationTimestamp"].endswith("Z")
    said = claims(found["status"]["token"])
    uid = admin.get(account).json["metadata"]["uid"]
    assert said["sub"] == f"system:serviceaccount:{namespace}:u"
    assert said["exp"] - said["iat"] == 600
    assert said["kubernetes.io"] == {
        "namespace": namespace,
        "serviceaccount": {"name": "u", "uid": uid},
    }
    http = server.bearer(found["status"]["token"])
    waiting.wait_until(lambda: http.get(config_maps_path).status == 200, what="the token is taken")


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        (
            {"expirationSeconds": 10},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: '
                "Invalid value: 10: may not specify a duration less than 10 minutes"
            ),
        ),
        (
            {"expirationSeconds": 2**33},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: '
                "Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds"
            ),
        ),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nope"}},
            404,
            'pods "nope" not found',
        ),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "a"}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ],
    ids=["short", "long", "gone", "kind"],
)
def test_invalid_token_requests_are_rejected(
    admin: Http, account: str, spec: Any, status: int, text: str
) -> None:
    done = ask(admin, account, **spec)
    assert (done.status, done.message) == (status, text)


def test_token_request_of_missing_account_is_not_found(admin: Http, account: str) -> None:
    """404; another name in the body is 422."""
    missing = ask(admin, account.replace("/u", "/none"))
    assert missing.message == 'serviceaccounts "none" not found'
    body = {"metadata": {"name": "other"}, "spec": {}}
    other = admin.post(f"{account}/token", body)
    assert other.status == 422
    assert other.message == (
        'TokenRequest.authentication.k8s.io "u" is invalid: metadata.name: Invalid value: '
        '"other": must match the service account name if specified'
    )


def test_token_for_another_audience_is_unauthorized(
    admin: Http, server: kube_servers.Server, account: str, config_maps_path: str
) -> None:
    """A token for others is none here."""
    found = ask(admin, account, audiences=["x"]).ok()
    assert claims(found["status"]["token"])["aud"] == ["x"]
    assert server.bearer(found["status"]["token"]).get(config_maps_path).status == 401


def test_bound_token_is_invalid_without_its_object(
    admin: Http, server: kube_servers.Server, account: str, config_maps_path: str, namespace: str
) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    made = admin.post(secrets, {"metadata": {"name": "s"}}).ok()["metadata"]
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    wrong = ask(admin, account, boundObjectRef={**reference, "uid": "x"})
    assert wrong.status == 409
    found = ask(admin, account, boundObjectRef=reference).ok()
    assert found["spec"]["boundObjectRef"]["name"] == "s"
    token = found["status"]["token"]
    assert claims(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": made["uid"]}
    http = server.bearer(token)
    waiting.wait_until(lambda: http.get(config_maps_path).status == 200, what="the token is taken")
    admin.delete(f"{secrets}/s").ok()
    wait_until_unauthorized(server, token, config_maps_path)


def test_token_is_invalid_after_deletion_of_its_account(
    admin: Http, server: kube_servers.Server, account: str, config_maps_path: str
) -> None:
    """Another account of that name does not revive it."""
    token = ask(admin, account).ok()["status"]["token"]
    http = server.bearer(token)
    waiting.wait_until(lambda: http.get(config_maps_path).status == 200, what="the token is taken")
    admin.delete(account).ok()
    admin.post(account.removesuffix("/u"), {"metadata": {"name": "u"}}).ok()
    wait_until_unauthorized(server, token, config_maps_path)


@pytest.mark.timeout(240)
def test_token_is_invalid_a_minute_after_a_deletion(
    admin: Http, server: kube_servers.Server, account: str, namespace: str
) -> None:
    """Of the account, and of what it is bound to, though a finalizer holds these for longer."""
    here = f"/api/v1/namespaces/{namespace}"
    node = kube_servers.fresh_name("node")
    pod_spec = {"serviceAccountName": "u", "containers": [{"name": "c", "image": "x"}]}
    bodies: dict[str, tuple[str, Any]] = {
        "Pod": (f"{here}/pods", {"metadata": {"name": "it"}, "spec": pod_spec}),
        "Secret": (f"{here}/secrets", {"metadata": {"name": "it"}}),
        "Node": (
            "/api/v1/nodes",
            {"metadata": {"name": node}, "spec": {"unschedulable": True}},
        ),
    }
    paths, tokens = [account], [ask(admin, account).ok()["status"]["token"]]
    admin.patch(account, {"metadata": {"finalizers": ["kiln.test/hold"]}}).ok()
    review = "/apis/authentication.k8s.io/v1/tokenreviews"

    def is_valid(token: str) -> bool:
        done = admin.post(review, {"spec": {"token": token}}).ok()
        return bool(done["status"].get("authenticated"))

    try:
        for kind, (collection, body) in bodies.items():
            body["metadata"]["finalizers"] = ["kiln.test/hold"]
            name = admin.post(collection, body).ok()["metadata"]["name"]
            reference = {"kind": kind, "apiVersion": "v1", "name": name}
            paths.append(f"{collection}/{name}")
            tokens.append(ask(admin, account, boundObjectRef=reference).ok()["status"]["token"])
        # The account last: while it is there, each token ends for a reason of its own.
        for path in paths[1:]:
            admin.delete(path, gracePeriodSeconds=0).ok()
        assert all(map(is_valid, tokens))
        waiting.wait_until(
            lambda: not any(map(is_valid, tokens[1:])),
            what="tokens end with what they are bound to",
            timeout_s=100,
            every_s=1,
        )
        assert is_valid(tokens[0])
    finally:
        for path in paths:
            admin.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.timeout(240)
def test_token_is_invalid_a_minute_after_its_account(admin: Http, account: str) -> None:
    """Though a finalizer holds the account."""
    review = "/apis/authentication.k8s.io/v1/tokenreviews"
    token = ask(admin, account).ok()["status"]["token"]

    def is_valid() -> bool:
        done = admin.post(review, {"spec": {"token": token}}).ok()
        return bool(done["status"].get("authenticated"))

    admin.patch(account, {"metadata": {"finalizers": ["kiln.test/hold"]}}).ok()
    try:
        admin.delete(account).ok()
        assert is_valid()
        waiting.wait_until(lambda: not is_valid(), what="the token ends", timeout_s=100, every_s=1)
        assert admin.get(account).status == 200
    finally:
        admin.patch(account, {"metadata": {"finalizers": None}})


def test_token_cannot_be_bound_to_pod_of_another_account(
    admin: Http, account: str, namespace: str
) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    admin.post(f"/api/v1/namespaces/{namespace}/pods", pod).ok()
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    done = ask(admin, account, boundObjectRef=reference)
    assert (done.status, done.message) == (
        400,
        (
            'cannot bind token for serviceaccount "u" to pod running with different '
            "serviceaccount name."
        ),
    )


def test_modified_token_is_unauthorized(
    admin: Http, server: kube_servers.Server, account: str, config_maps_path: str
) -> None:
    """401 with nothing but the word."""
    token = ask(admin, account).ok()["status"]["token"]
    head, body, signature = token.split(".")
    other = claims(token) | {"sub": "system:serviceaccount:kube-system:default"}
    forged = base64.urlsafe_b64encode(json.dumps(other).encode()).rstrip(b"=").decode()
    for wrong in (f"{head}.{forged}.{signature}", f"{head}.{body}.", "x"):
        done = server.bearer(wrong).get(config_maps_path)
        assert (done.status, done.message, done.reason) == (401, "Unauthorized", "Unauthorized")


def test_kubectl_create_token(
    kubectl: kube_servers.Kubectl, server: kube_servers.Server, account: str, config_maps_path: str
) -> None:
    """`kubectl create token`."""
    token = kubectl("create", "token", "u", "--duration=15m").strip()
    said = claims(token)
    assert said["exp"] - said["iat"] == 900
    http = server.bearer(token)
    waiting.wait_until(lambda: http.get(config_maps_path).status == 200, what="the token is taken")
