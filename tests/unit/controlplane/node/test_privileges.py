"""The part of a securityContext that a process can be given, and what is refused."""

from typing import Any

import pytest

from kilnwork.controlplane.node import privileges

AT = "spec.containers[0]"


def of(
    container: dict[str, Any], pod: dict[str, Any] | None = None, *, uid: int = 1000
) -> privileges.Privileges:
    return privileges.privileges_of(pod or {}, container, uid=uid, gid=100, at=AT)


def test_nothing_is_dropped_by_default() -> None:
    assert of({}) == privileges.Privileges(no_new_privileges=False, dropped=())


@pytest.mark.parametrize(("allowed", "locked"), [(True, False), (False, True), (None, False)])
def test_only_false_forbids_escalation(*, allowed: bool | None, locked: bool) -> None:
    assert of({"allowPrivilegeEscalation": allowed}).no_new_privileges is locked


def test_capabilities_are_dropped_by_number_and_added_ones_stay() -> None:
    chown, kill = (privileges.CAPABILITIES.index(name) for name in ("CHOWN", "KILL"))
    found = of({"capabilities": {"drop": ["kill", "CAP_CHOWN", "UNKNOWN"]}})
    assert found.dropped == (chown, kill)
    every = set(range(len(privileges.CAPABILITIES)))
    found = of({"capabilities": {"drop": ["ALL"], "add": ["KILL"]}})
    assert found.dropped == tuple(sorted(every - {kill}))


@pytest.mark.parametrize(
    ("container", "pod", "path"),
    [
        ({"runAsUser": 0}, {}, f"{AT}.securityContext.runAsUser"),
        ({}, {"runAsUser": 0}, "spec.securityContext.runAsUser"),
        ({"runAsGroup": 7}, {"runAsGroup": 100}, f"{AT}.securityContext.runAsGroup"),
    ],
)
def test_another_user_or_group_is_refused_by_path(
    container: dict[str, Any], pod: dict[str, Any], path: str
) -> None:
    with pytest.raises(privileges.PrivilegeRefused) as refused:
        of(container, pod)
    assert str(refused.value).startswith(f"{path}: ")


def test_the_container_goes_before_its_pod() -> None:
    assert of({"runAsUser": 1000}, {"runAsUser": 0}) == privileges.Privileges()


def test_a_node_of_root_runs_nothing_that_must_not_be_root() -> None:
    assert of({"runAsNonRoot": True}) == privileges.Privileges()
    with pytest.raises(privileges.PrivilegeRefused, match="this node runs as root"):
        of({"runAsNonRoot": True}, uid=0)
