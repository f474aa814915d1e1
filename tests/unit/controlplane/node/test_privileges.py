"""The part of a securityContext that a process can be given, and what is refused."""

from typing import Any

import pytest

from kilnwork.controlplane.node import privileges

AT = "spec.containers[0]"


def privileges_for(
    container: dict[str, Any], pod: dict[str, Any] | None = None, *, uid: int = 1000
) -> privileges.Privileges:
    return privileges.privileges_of(pod or {}, container, uid=uid, gid=100, at=AT)


def test_nothing_is_dropped_by_default() -> None:
    assert privileges_for({}) == privileges.Privileges(no_new_privileges=False, dropped=())


@pytest.mark.parametrize(("allowed", "locked"), [(True, False), (False, True), (None, False)])
def test_only_explicit_false_forbids_escalation(*, allowed: bool | None, locked: bool) -> None:
    assert privileges_for({"allowPrivilegeEscalation": allowed}).no_new_privileges is locked


def test_capabilities_are_dropped_except_added_ones() -> None:
    chown, kill = (privileges.CAPABILITIES.index(name) for name in ("CHOWN", "KILL"))
    found = privileges_for({"capabilities": {"drop": ["kill", "CAP_CHOWN", "UNKNOWN"]}})
    assert found.dropped == (chown, kill)
    every = set(range(len(privileges.CAPABILITIES)))
    found = privileges_for({"capabilities": {"drop": ["ALL"], "add": ["KILL"]}})
    assert found.dropped == tuple(sorted(every - {kill}))


@pytest.mark.parametrize(
    ("container", "pod", "path"),
    [
        ({"runAsUser": 0}, {}, f"{AT}.securityContext.runAsUser"),
        ({}, {"runAsUser": 0}, "spec.securityContext.runAsUser"),
        ({"runAsGroup": 7}, {"runAsGroup": 100}, f"{AT}.securityContext.runAsGroup"),
    ],
)
def test_other_user_or_group_is_refused_with_field_path(
    container: dict[str, Any], pod: dict[str, Any], path: str
) -> None:
    with pytest.raises(privileges.PrivilegeRefused) as refused:
        privileges_for(container, pod)
    assert str(refused.value).startswith(f"{path}: ")


def test_container_setting_overrides_its_pod() -> None:
    assert privileges_for({"runAsUser": 1000}, {"runAsUser": 0}) == privileges.Privileges()


def test_root_node_refuses_run_as_non_root() -> None:
    assert privileges_for({"runAsNonRoot": True}) == privileges.Privileges()
    with pytest.raises(privileges.PrivilegeRefused, match="this node runs as root"):
        privileges_for({"runAsNonRoot": True}, uid=0)
