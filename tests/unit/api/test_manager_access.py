"""Where clients find the manager, and the message if they cannot reach it."""

import pytest

from kilnwork.api import manager_access


def test_home_namespace_from_the_environment() -> None:
    assert manager_access.manager_namespace({}) == "kilnwork-system"
    assert manager_access.manager_namespace({"KILN_MANAGER_NAMESPACE": ""}) == "kilnwork-system"
    assert manager_access.manager_namespace({"KILN_MANAGER_NAMESPACE": "ops"}) == "ops"


def test_the_path_of_the_proxy_is_quoted() -> None:
    path = manager_access.proxy_path("a/b")
    assert path == "/api/v1/namespaces/a%2Fb/services/https:kilnwork:https/proxy"


def test_token_request_has_only_the_audience_of_the_manager() -> None:
    spec = manager_access.token_request()["spec"]
    assert spec == {"audiences": ["kilnwork.dev"], "expirationSeconds": 3600}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "no manager is installed in namespace ops"),
        (503, "is not ready: said"),
        (403, "you may not reach the manager"),
        (401, "does not accept the token"),
        (0, "cannot be used: said"),
    ],
)
def test_obstacle_gives_cause_and_remedy(status: int, text: str) -> None:
    assert text in manager_access.explain_unreachable(status, "said", home="ops")


def test_the_default_absence_is_within_its_bounds() -> None:
    assert manager_access.MIN_ABSENCE_S < manager_access.ABSENCE_S < manager_access.MAX_ABSENCE_S
