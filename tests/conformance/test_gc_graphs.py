"""Random owner graphs: what is left after everything has settled, as a model says."""

import random

import pytest

from support import gc_graphs, kube_servers

_FRESH = random.SystemRandom().getrandbits(32)
"""Another graph in each run, by whose seed a failure can be had again."""


@pytest.fixture
def second_namespace(admin: kube_servers.Http, namespaces_made: list[str]) -> str:
    """One more, for owners in another namespace."""
    name = kube_servers.fresh_name("other")
    admin.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    namespaces_made.append(name)
    return name


@pytest.mark.parametrize("first", range(0, 40, 10))
@pytest.mark.timeout(600)
def test_owner_graphs_settle_as_in_the_model(
    admin: kube_servers.Http, namespace: str, second_namespace: str, first: int
) -> None:
    """All policies, finalizers, several owners, owners that are none, circles."""
    for seed in range(first, first + 10):
        gc_graphs.play(admin, seed, (namespace, second_namespace))


def test_former_foreground_dependent_counts_as_cycle(
    admin: kube_servers.Http, namespace: str, second_namespace: str
) -> None:
    """Graph 2122: it is still taken for one that closes a circle."""
    played = gc_graphs.play(admin, 2122, (namespace, second_namespace))
    assert played.story


@pytest.mark.timeout(600)
def test_random_owner_graph_settles_as_in_the_model(
    admin: kube_servers.Http, namespace: str, second_namespace: str
) -> None:
    """Its seed is in the failure."""
    print(f"seed {_FRESH}")
    played = gc_graphs.play(admin, _FRESH, (namespace, second_namespace))
    assert played.story
