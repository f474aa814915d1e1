"""Reviews: questions about rights and identities, posted and evaluated, never kept."""

from typing import Any

import pytest

from support import kube_servers, waiting

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
EVERYBODY = "system:authenticated"
EITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
BOTH = "cannot be specified in combination with resourceAttributes"
SHOWN = 'authorization.NonResourceAttributes{Path:"/api", Verb:"get"}'


def review(http: kube_servers.Http, path: str, spec: Any) -> Any:
    """The evaluated review; without what servers say about its fields."""
    response = http.post(path, {"spec": spec})
    assert response.status == 201, response.body
    return response.json


def cause_of(response: kube_servers.Response) -> str:
    assert (response.status, response.reason) == (422, "Invalid")
    assert response.json["details"]["group"] == "authorization.k8s.io"
    [cause] = response.json["details"]["causes"]
    assert response.message == (
        f'.authorization.k8s.io "" is invalid: {cause["field"]}: {cause["message"]}'
    )
    return f"{cause['field']}: {cause['message']}"


def pods(namespace: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace}}


def test_self_subject_access_review(admin: kube_servers.Http, namespace: str) -> None:
    """An administrator everything, a stranger nothing."""
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    found = review(admin, path, pods(namespace))
    assert (found["kind"], found["apiVersion"]) == (
        "SelfSubjectAccessReview",
        "authorization.k8s.io/v1",
    )
    assert (found["spec"], found["status"]) == (pods(namespace), {"allowed": True})
    stranger = admin.impersonating("joe", EVERYBODY)
    assert review(stranger, path, pods(namespace))["status"] == {"allowed": False}
    asked = {"nonResourceAttributes": {"verb": "get", "path": "/api"}}
    status = review(stranger, path, asked)["status"]
    assert status["allowed"]
    assert status["reason"].startswith("RBAC: allowed by ")


def test_access_review_reason_names_binding_and_role(
    admin: kube_servers.Http, namespace: str
) -> None:
    """The reason names the binding and the role."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    admin.post(f"{path}/roles", {"metadata": {"name": "reader"}, "rules": rules}).ok()
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "joe", "apiGroup": group}],
    }
    admin.post(f"{path}/rolebindings", binding).ok()
    joe = admin.impersonating("joe", EVERYBODY)

    def status() -> Any:
        path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
        return review(joe, path, pods(namespace))["status"]

    waiting.wait_until(lambda: status()["allowed"], what="joe may")
    assert status() == {
        "allowed": True,
        "reason": (
            f'RBAC: allowed by RoleBinding "readers/{namespace}" of Role "reader" to User "joe"'
        ),
    }


def test_subject_access_review(admin: kube_servers.Http, namespace: str) -> None:
    """By name and groups; only who may ask gets an response."""
    path = f"{AUTHORIZATION}/subjectaccessreviews"
    asked = {"user": "joe", "groups": ["system:masters"], **pods(namespace)}
    assert review(admin, path, asked)["status"] == {"allowed": True}
    assert review(admin, path, {"user": "joe", **pods(namespace)})["status"] == {"allowed": False}
    refused = admin.impersonating("joe", EVERYBODY).post(path, {"spec": asked})
    assert refused.message == (
        'subjectaccessreviews.authorization.k8s.io is forbidden: User "joe" cannot create resource '
        '"subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope'
    )


def test_local_subject_access_review(admin: kube_servers.Http, namespace: str) -> None:
    path = f"{AUTHORIZATION}/namespaces/{namespace}/localsubjectaccessreviews"
    found = review(admin, path, {"user": "joe", **pods(namespace)})
    assert found["metadata"]["namespace"] == namespace
    assert found["status"] == {"allowed": False}
    other = admin.post(path, {"spec": {"user": "joe", **pods("default")}})
    assert cause_of(other) == (
        'spec.resourceAttributes.namespace: Invalid value: "default": must match metadata.namespace'
    )
    asked = {"user": "joe", "nonResourceAttributes": {"path": "/", "verb": "get"}}
    assert cause_of(admin.post(path, {"spec": asked})) == (
        "spec.nonResourceAttributes: Invalid value: authorization.NonResourceAttributes"
        '{Path:"/", Verb:"get"}: disallowed on this kind of request'
    )


@pytest.mark.parametrize(
    ("plural", "spec", "expected"),
    [
        (
            "selfsubjectaccessreviews",
            {},
            f'spec.resourceAttributes: Invalid value: "null": {EITHER}',
        ),
        (
            "selfsubjectaccessreviews",
            {
                "nonResourceAttributes": {"path": "/api", "verb": "get"},
                "resourceAttributes": {"verb": "get"},
            },
            f"spec.nonResourceAttributes: Invalid value: {SHOWN}: {BOTH}",
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": {"verb": "get"}},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
    ],
)
def test_empty_reviews_are_rejected(
    admin: kube_servers.Http, plural: str, spec: dict[str, Any], expected: str
) -> None:
    assert cause_of(admin.post(f"{AUTHORIZATION}/{plural}", {"spec": spec})) == expected


def test_self_subject_rules_review(admin: kube_servers.Http, namespace: str) -> None:
    """As `kubectl auth can-i --list` shows it."""
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    found = review(admin, path, {"namespace": namespace})["status"]
    assert everything in found["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in found["nonResourceRules"]
    stranger = admin.impersonating("joe", EVERYBODY)
    found = review(stranger, path, {"namespace": namespace})["status"]
    assert found["incomplete"] is False
    assert everything not in found["resourceRules"]
    own = {
        "verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    }
    assert own in found["resourceRules"]
    nowhere = admin.post(path, {"spec": {}})
    assert (nowhere.status, nowhere.message) == (400, "no namespace on request")


def test_self_subject_review(admin: kube_servers.Http) -> None:
    """As `kubectl auth whoami` shows it."""
    path = f"{AUTHENTICATION}/selfsubjectreviews"
    found = admin.post(path, {}).ok()
    assert found["kind"] == "SelfSubjectReview"
    assert found["status"]["userInfo"]["groups"] == ["system:masters", EVERYBODY]
    joe = admin.impersonating("joe", "g1", EVERYBODY).post(path, {}).ok()
    assert joe["status"]["userInfo"] == {"username": "joe", "groups": ["g1", EVERYBODY]}


def test_token_review_returns_the_user(admin: kube_servers.Http, namespace: str) -> None:
    """For the audience of the API server unless another is named."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    uid = admin.get(accounts).ok()["metadata"]["uid"]
    made = admin.post(f"{accounts}/token", {"spec": {"expirationSeconds": 600}}).ok()
    token = made["status"]["token"]
    path = f"{AUTHENTICATION}/tokenreviews"
    status = review(admin, path, {"token": token})["status"]
    assert status["authenticated"] is True
    assert status["audiences"] == made["spec"]["audiences"]
    user = status["user"]
    assert (user["username"], user["uid"]) == (f"system:serviceaccount:{namespace}:default", uid)
    assert user["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        EVERYBODY,
    ]
    other = review(admin, path, {"token": token, "audiences": ["other"]})["status"]
    assert "authenticated" not in other
    assert "invalid bearer token" in other["error"]


def test_token_review_of_invalid_token(admin: kube_servers.Http) -> None:
    """An error in the status; no token is a bad request."""
    path = f"{AUTHENTICATION}/tokenreviews"
    assert review(admin, path, {"token": "garbage"})["status"] == {
        "user": {},
        "error": "invalid bearer token",
    }
    response = admin.post(path, {"spec": {}})
    assert (response.status, response.message) == (
        400,
        "token is required for TokenReview in authentication",
    )


def test_reviews_are_not_stored(admin: kube_servers.Http) -> None:
    path = f"{AUTHORIZATION}/subjectaccessreviews"
    assert admin.get(path).status == 405
    assert admin.get(f"{path}/x").status == 404
