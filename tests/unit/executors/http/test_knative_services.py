"""When a Service of Knative may be requested, by what its status says."""

from typing import Any

import pytest

from kilnwork.executors.http import knative_services

URL, OWN = "https://hello.example.com", "http://hello.default.svc.cluster.local"


def condition(type_: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    more = {name: text for name, text in (("reason", reason), ("message", message)) if text}
    return {"type": type_, "status": status, **more}


def service(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A Service of generation 2 that is ready but for what is given."""
    given = {one["type"]: one for one in conditions}
    names = ("ConfigurationsReady", "Ready", "RoutesReady")
    return {
        "metadata": {"name": "hello", "generation": 2},
        "status": {
            "observedGeneration": 2,
            "conditions": [given.get(name, condition(name, "True")) for name in names],
            "url": URL,
            "address": {"url": OWN},
            **status,
        },
    }


@pytest.mark.parametrize(("inside", "url"), [(True, OWN), (False, URL)])
def test_url_of_a_ready_service_depends_on_our_network(*, inside: bool, url: str) -> None:
    assert knative_services.ready_url(service(), inside=inside) == url


@pytest.mark.parametrize("without", ["address", "url"])
def test_its_only_url_is_used_from_anywhere(without: str) -> None:
    found = {
        knative_services.ready_url(service(**{without: None}), inside=i) for i in (True, False)
    }
    assert found == {URL if without == "address" else OWN}


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"metadata": {"generation": 1}}, "not seen generation 1"),
        (service(observedGeneration=1), "not seen generation 2"),
        (service(conditions=None), "it is not Ready"),
        (service(condition("Ready", "Unknown")), "it is not Ready"),
        (
            service(
                condition("Ready", "Unknown"),
                condition("ConfigurationsReady", "Unknown", "Deploying", "is being deployed"),
            ),
            "Deploying: is being deployed",
        ),
        (
            service(
                condition("Ready", "False", "RevisionFailed", "ContainerMissing: no such image"),
                condition("ConfigurationsReady", "False", "RevisionFailed"),
            ),
            "RevisionFailed: ContainerMissing: no such image",
        ),
        (
            service(
                condition("Ready", "False", "RevisionMissing", "it has no ready Revision"),
                condition("RoutesReady", "False", "RevisionMissing", "it has no ready Revision"),
                condition("ConfigurationsReady", "False", "RevisionFailed", "no such image"),
            ),
            "RevisionFailed: no such image",
        ),
        (
            service(condition("RoutesReady", "Unknown", "IngressNotConfigured", "not yet")),
            "IngressNotConfigured: not yet",
        ),
        (service(url=None, address=None), "no URL"),
        (service(url="ftp://x", address=None), "no URL"),
    ],
)
def test_a_service_that_is_not_ready_says_why(seen: dict[str, Any], why: str) -> None:
    with pytest.raises(knative_services.NotReadyError, match=why):
        knative_services.ready_url(seen, inside=False)
