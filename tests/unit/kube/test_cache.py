"""Objects by key and by owner, as they come, change and go."""

from kilnwork.api import meta
from kilnwork.kube import cache


def _pod(name: str, *owners: str, namespace: str = "x") -> meta.JsonObject:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [{"uid": uid} for uid in owners],
        },
    }


def _names(found: list[meta.JsonObject]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in found)


def test_objects_are_found_by_key() -> None:
    pods: cache.Cache[meta.JsonObject] = cache.Cache()
    for pod in (_pod("a"), _pod("b"), _pod("a", namespace="y")):
        assert pods.put(pod) is None
    assert pods.get(("x", "a")) == _pod("a")
    assert pods.get(("z", "a")) is None
    assert _names(pods.list()) == ["a", "a", "b"]
    assert (len(pods), ("y", "a") in pods) == (3, True)


def test_owners_follow_changes() -> None:
    pods: cache.Cache[meta.JsonObject] = cache.Cache()
    pods.put(_pod("a", "u1", "u2"))
    pods.put(_pod("b", "u1"))
    assert _names(pods.owned_by("u1")) == ["a", "b"]
    assert pods.put(_pod("a", "u2")) == _pod("a", "u1", "u2")
    assert _names(pods.owned_by("u1")) == ["b"]
    assert _names(pods.owned_by("u2")) == ["a"]
    pods.remove(("x", "a"))
    assert pods.owned_by("u2") == []
    assert pods.remove(("x", "a")) is None


def test_structs_have_owners_too() -> None:
    owner = meta.OwnerReference(api_version="v1", kind="Pod", name="o", uid="u1")
    pods: cache.Cache[meta.Partial] = cache.Cache()
    pods.put(meta.Partial(metadata=meta.ObjectMeta(name="a", owner_references=(owner,))))
    assert [p.metadata.name for p in pods.owned_by("u1")] == ["a"]
