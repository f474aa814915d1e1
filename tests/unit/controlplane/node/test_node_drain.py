"""How Pods are evicted from a node, and that none is deleted in another way."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.node import node_drain, pod_types
from kilnwork.kube import client, errors


class RefusingClient(client.Client):
    """A client whose evictions fail with the given errors, one after another, and then succeed."""

    def __init__(self, *refusals: errors.ApiError) -> None:
        pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}}
        self.pods = [msgspec.convert(pod, pod_types.Pod)]
        self.refusals = list(refusals)
        self.deleted = 0

    async def create_sub(
        self,
        resource: api_resources.Resource,
        name: str,
        sub: str,
        body: Any,
        namespace: str | None = None,
    ) -> dict[str, Any]:
        assert (name, sub, namespace) == ("p", "eviction", "ns")
        if self.refusals:
            raise self.refusals.pop(0)
        self.pods = []
        return {}

    async def delete(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.deleted += 1
        self.pods = []
        return {}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rounds follow one another at once."""
    monkeypatch.setattr(node_drain, "LOOK_S", 0.0)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "no rights"),
        (500, "This pod has more than one PodDisruptionBudget"),
        (503, "etcd is away"),
    ],
)
async def test_failed_eviction_is_repeated_and_the_pod_not_deleted(
    status: int, message: str
) -> None:
    kube, said = RefusingClient(errors.from_status(status, "", message)), list[str]()
    await node_drain.drain(kube, lambda: kube.pods, said.append)
    assert f"ns/p cannot be evicted: {message}" in said
    assert not kube.deleted


async def test_disruption_budget_is_waited_for() -> None:
    kube, said = RefusingClient(errors.from_status(429, "", "the budget")), list[str]()
    await node_drain.drain(kube, lambda: kube.pods, said.append)
    assert "ns/p may not be evicted yet: the budget" in said
    assert not kube.deleted


async def test_pod_that_is_gone_or_has_changed_is_not_reported() -> None:
    kube, said = RefusingClient(errors.from_status(404), errors.from_status(409)), list[str]()
    await node_drain.drain(kube, lambda: kube.pods, said.append)
    assert not [text for text in said if "evicted" in text]
    assert not kube.deleted


async def test_server_that_does_not_respond_ends_the_drain() -> None:
    kube = RefusingClient(errors.Unavailable(0, "Timeout", "no response"))
    with pytest.raises(errors.Unavailable, match="no response"):
        await node_drain.drain(kube, lambda: kube.pods, lambda _: None)


async def test_refusal_is_shown_until_the_next_eviction() -> None:
    kube, said = RefusingClient(errors.from_status(429, "", "the budget")), list[str]()
    await node_drain.drain(kube, lambda: kube.pods, said.append)
    waiting = "ns/p may not be evicted yet: the budget"
    assert said == ["ending 1 Pods, ns/p among them", *[waiting] * node_drain.AGAIN_LOOKS]
