"""Conditions keep their time while their status stays."""

from kilnwork.api import meta


def condition(type_: str, status: str, time: str = "") -> meta.Condition:
    return meta.Condition(type=type_, status=status, reason="X", last_transition_time=time)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    before = (condition("Ready", "True", "t1"), condition("Full", "False", "t1"))
    new = (condition("Ready", "False"), condition("Full", "False"))
    merged = meta.merge_conditions(before, new, now="t2")
    assert [(c.type, c.last_transition_time) for c in merged] == [("Ready", "t2"), ("Full", "t1")]


def test_condition_that_is_not_given_is_kept() -> None:
    before = (condition("Ready", "True", "t1"),)
    merged = meta.merge_conditions(before, (condition("Full", "True"),), now="t2")
    assert merged == (*before, condition("Full", "True", "t2"))


def test_controller_is_the_owner_with_controller_true() -> None:
    owner = meta.OwnerReference(api_version="v1", kind="A", name="a", uid="1")
    manager = meta.OwnerReference(api_version="v1", kind="B", name="b", uid="2", controller=True)
    assert meta.ObjectMeta(owner_references=(owner, manager)).controller() == manager
    assert meta.ObjectMeta(owner_references=(owner,)).controller() is None
