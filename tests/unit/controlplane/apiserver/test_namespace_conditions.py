"""What a Namespace that is being deleted says about what holds it up."""

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import namespace_conditions

BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def conditions_of(remaining: namespace_conditions.Remaining) -> dict[str, tuple[str, str, str]]:
    made = namespace_conditions.updated([], remaining, now=NOW)
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in made}


def test_empty_namespace_has_five_false_conditions() -> None:
    found = conditions_of(namespace_conditions.Remaining())
    assert len(found) == 5
    assert {status for status, _, _ in found.values()} == {"False"}


def test_remaining_objects_and_finalizers_are_counted() -> None:
    remaining = namespace_conditions.Remaining()
    held = meta.ObjectMeta(name="a", finalizers=("x/y",))
    remaining.add(api_resources.CONFIG_MAPS, [held, held])
    remaining.add(api_resources.PODS, [meta.ObjectMeta(name="p")])
    found = conditions_of(remaining)
    assert found["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        (
            "Some resources are remaining: configmaps. has 2 resource instances, "
            "pods. has 1 resource instances"
        ),
    )
    assert found["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: x/y in 2 resource instances",
    )
    assert found["NamespaceDeletionContentFailure"][0] == "False"


def test_deletion_failures_are_listed() -> None:
    remaining = namespace_conditions.Remaining()
    remaining.failures += ["b", "a"]
    assert conditions_of(remaining)["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: a, b",
    )


def test_transition_times_change_only_with_status() -> None:
    remaining = namespace_conditions.Remaining()
    other = {"type": "Own", "status": "True"}
    first = namespace_conditions.updated([other], remaining, now=BEFORE)
    assert first[0] == other
    remaining.objects["pods."] = 1
    then = namespace_conditions.updated(first, remaining, now=NOW)
    times = {c["type"]: c.get("lastTransitionTime") for c in then}
    assert times.pop("NamespaceContentRemaining") == NOW
    assert set(times.values()) == {None, BEFORE}
