"""TokenRequest: what may be asked for, and by whom."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, statuses, tokenrequests, tokens
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from support import memory_lookup

ACCOUNT = {"metadata": {"name": "sa", "namespace": "ns", "uid": "sa-uid"}}
POD = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"},
    "spec": {"serviceAccountName": "sa", "nodeName": "local"},
}
SECRET = {"metadata": {"name": "s", "namespace": "ns", "uid": "secret-uid"}}
NODE_OBJECT = {"metadata": {"name": "local", "uid": "node-uid"}}
NODE = authn.User("system:node:local", groups=("system:nodes", "system:authenticated"))


@pytest.fixture
def token_issuer() -> tokens.TokenIssuer:
    key = ec.generate_private_key(ec.SECP256R1())
    return tokens.TokenIssuer(key, clock=clocks.ManualClock(), new_uid=ids.new_uid)


def issue_token(
    token_issuer: tokens.TokenIssuer, spec: dict[str, Any] | None, *, user: authn.User = authn.ADMIN
) -> dict[str, Any]:
    return tokenrequests.issue_token(
        {} if spec is None else {"spec": spec},
        account=ACCOUNT,
        minter=token_issuer,
        reader=memory_lookup.MemoryLookup(
            (api_resources.PODS, POD),
            (api_resources.SECRETS, SECRET),
            (api_resources.NODES, NODE_OBJECT),
        ),
        user=user,
    )


@pytest.mark.parametrize("spec", [None, {}, {"audiences": [], "expirationSeconds": None}])
def test_default_token_lasts_an_hour_for_this_server(
    token_issuer: tokens.TokenIssuer, spec: dict[str, Any] | None
) -> None:
    response = issue_token(token_issuer, spec)
    assert (response["kind"], response["apiVersion"]) == (
        "TokenRequest",
        "authentication.k8s.io/v1",
    )
    assert response["spec"] == {"audiences": [tokens.API_AUDIENCE], "expirationSeconds": 3600}
    claims = token_issuer.verify(response["status"]["token"])
    assert claims is not None
    assert response["status"]["expirationTimestamp"] == clocks.rfc3339(claims.expires)


def test_token_is_bound_to_a_pod_by_its_uid(token_issuer: tokens.TokenIssuer) -> None:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "pod-uid"}
    response = issue_token(token_issuer, {"boundObjectRef": reference}, user=NODE)
    claims = token_issuer.verify(response["status"]["token"])
    assert claims is not None
    assert claims.bound == tokens.Bound("Pod", "p", "pod-uid")
    assert response["spec"]["boundObjectRef"] == reference


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 1 << 33}, 422, "may not specify a duration larger than"),
        ({"expirationSeconds": "1h"}, 400, "cannot be handled as a TokenRequest"),
        ({"boundObjectRef": {"kind": "Pod", "name": "q"}}, 404, 'pods "q" not found'),
        ({"boundObjectRef": {"kind": "Pod", "name": "p", "uid": "x"}}, 409, "does not match"),
        ({"boundObjectRef": {"kind": "Task", "name": "p"}}, 400, "cannot bind token"),
    ],
)
def test_invalid_token_requests_are_rejected(
    token_issuer: tokens.TokenIssuer, spec: dict[str, Any], code: int, text: str
) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        issue_token(token_issuer, spec)
    assert caught.value.code == code
    assert text in caught.value.message


@pytest.mark.parametrize(
    "reference",
    [
        None,
        {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "secret-uid"},
        {"kind": "Node", "apiVersion": "v1", "name": "local", "uid": "node-uid"},
    ],
)
def test_node_gets_only_tokens_bound_to_pods(
    token_issuer: tokens.TokenIssuer, reference: dict[str, str] | None
) -> None:
    with pytest.raises(statuses.StatusError, match="not bound to a pod") as caught:
        issue_token(token_issuer, {"boundObjectRef": reference}, user=NODE)
    assert caught.value.code == 403


def test_node_must_give_the_uid_of_the_pod(token_issuer: tokens.TokenIssuer) -> None:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    with pytest.raises(statuses.StatusError, match="without a uid") as caught:
        issue_token(token_issuer, {"boundObjectRef": reference}, user=NODE)
    assert caught.value.code == 403


@pytest.mark.parametrize("name", ["system:node:other", "local"])
def test_node_gets_no_tokens_bound_to_pods_of_other_nodes(
    token_issuer: tokens.TokenIssuer, name: str
) -> None:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "pod-uid"}
    user = authn.User(name, groups=NODE.groups)
    with pytest.raises(statuses.StatusError, match="on a different node") as caught:
        issue_token(token_issuer, {"boundObjectRef": reference}, user=user)
    assert caught.value.code == 403


def test_other_users_get_tokens_bound_to_secrets(token_issuer: tokens.TokenIssuer) -> None:
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    response = issue_token(
        token_issuer, {"boundObjectRef": reference}, user=authn.User("ann", groups=())
    )
    claims = token_issuer.verify(response["status"]["token"])
    assert claims is not None
    assert claims.bound == tokens.Bound("Secret", "s", "secret-uid")
