"""What a container may do, from its securityContext and that of its Pod."""

import os
from typing import Any

import pytest

from kilnwork.controlplane.node import privileges

AT = "spec.containers[0]"


def of(pod: dict[str, Any], container: dict[str, Any], *, uid: int = 7) -> privileges.Privileges:
    return privileges.of(pod, container, uid=uid, gid=8, at=AT)


def number(name: str) -> int:
    return privileges.CAPABILITIES.index(name)


@pytest.mark.parametrize(
    ("pod", "container", "field"),
    [
        ({"runAsUser": 1}, {}, "spec.securityContext.runAsUser"),
        ({"runAsUser": 7}, {"runAsUser": 1}, f"{AT}.securityContext.runAsUser"),
        ({"runAsGroup": 1}, {}, "spec.securityContext.runAsGroup"),
    ],
)
def test_another_user_is_refused_by_field(
    pod: dict[str, Any], container: dict[str, Any], field: str
) -> None:
    with pytest.raises(privileges.PrivilegeRefused) as refused:
        of(pod, container)
    assert str(refused.value).startswith(f"{field}: 1 is not the ")


def test_the_container_goes_before_the_pod() -> None:
    assert of({"runAsUser": 1, "runAsGroup": 8}, {"runAsUser": 7}) == privileges.Privileges()


def test_root_is_refused_to_who_wants_none() -> None:
    with pytest.raises(privileges.PrivilegeRefused, match="runAsNonRoot"):
        of({"runAsNonRoot": True}, {}, uid=0)
    of({"runAsNonRoot": True}, {"runAsNonRoot": False}, uid=0)
    of({"runAsNonRoot": True}, {})


@pytest.mark.parametrize(
    ("capabilities", "dropped"),
    [
        ({}, set()),
        ({"drop": ["CHOWN", "cap_kill", "NO_SUCH"]}, {"CHOWN", "KILL"}),
        ({"drop": ["all"]}, set(privileges.CAPABILITIES)),
        ({"drop": ["ALL"], "add": ["KILL"]}, set(privileges.CAPABILITIES) - {"KILL"}),
        ({"add": ["SYS_ADMIN"]}, set()),
    ],
)
def test_capabilities_are_dropped_by_number(
    capabilities: dict[str, list[str]], dropped: set[str]
) -> None:
    found = of({}, {"capabilities": capabilities})
    assert found.dropped == tuple(sorted(map(number, dropped)))


@pytest.mark.parametrize(("allowed", "never"), [(False, True), (True, False), (None, False)])
def test_escalation_must_be_forbidden(*, allowed: bool | None, never: bool) -> None:
    assert of({}, {"allowPrivilegeEscalation": allowed}).no_new_privileges is never


def test_a_running_process_shows_what_it_has_dropped() -> None:
    found = privileges.of_process(os.getpid())
    assert set(found.dropped) <= set(range(len(privileges.CAPABILITIES)))
    assert (number("CHOWN"), number("KILL")) == (0, 5)
