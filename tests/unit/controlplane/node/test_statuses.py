"""The status of a Pod is the kubelet's, and computing it twice gives the same."""

from typing import Any

import msgspec

from kilnwork.controlplane.node import pod_decisions, pod_types, shim_container, statuses

NOW = 1_700_000_000.0
RUNNING = shim_container.ContainerRecord("u/main/0", "/f", pid=5, started_at=NOW)
BAD = RUNNING._replace(exit_code=137, signal=9, finished_at=NOW + 1)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "t"}


def pod(policy: str = "Never", *, deleted: bool = False, **status: Any) -> pod_types.Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": "u"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": policy}
    obj = {"metadata": metadata, "spec": spec, "status": {"conditions": [SCHEDULED], **status}}
    return msgspec.convert(obj, pod_types.Pod)


def status(of: pod_types.Pod, now: float = NOW, **view: Any) -> dict[str, Any]:
    facts = statuses.PodFacts("127.0.0.1", now)
    return statuses.status(of, {"main": pod_decisions.ContainerView(**view)}, facts)


def state(found: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = found["containerStatuses"][0]["state"]
    return state


def test_running_container_is_ready() -> None:
    found = status(pod(), last=RUNNING)
    assert found["phase"] == "Running"
    assert state(found) == {"running": {"startedAt": "2023-11-14T22:13:20Z"}}
    assert found["containerStatuses"][0]["ready"]
    conditions = {c["type"]: c["status"] for c in found["conditions"]}
    assert conditions == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }


def test_terminated_state_has_code_signal_and_reason() -> None:
    found = status(pod(), last=BAD)
    assert found["phase"] == "Failed"
    ended = state(found)["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")
    ready = next(c for c in found["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodFailed")


def test_successful_pod_has_succeeded() -> None:
    found = status(pod(), last=BAD._replace(exit_code=0, signal=0))
    assert found["phase"] == "Succeeded"
    assert state(found)["terminated"]["reason"] == "Completed"


def test_failed_start_keeps_its_message() -> None:
    failed = BAD._replace(exit_code=128, signal=0, reason="StartError", message='exec: "x": no')
    ended = state(status(pod(), last=failed))["terminated"]
    assert (ended["reason"], ended["message"]) == ("StartError", 'exec: "x": no')


def test_missing_input_is_the_waiting_reason() -> None:
    view: dict[str, Any] = {"reason": "CreateContainerConfigError", "message": "no secret"}
    found = status(pod(), **view)
    assert found["phase"] == "Pending"
    assert state(found) == {"waiting": view}


def test_waiting_for_restart_is_crash_loop_back_off() -> None:
    found = status(pod("Always"), last=BAD, row=3)
    assert found["phase"] == "Running"
    assert state(found)["waiting"]["reason"] == "CrashLoopBackOff"
    assert "back-off 2s" in state(found)["waiting"]["message"]
    assert found["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137


def test_last_state_is_the_end_before_a_restart() -> None:
    again = RUNNING._replace(id="u/main/1")
    found = status(pod("Always"), last=again, before=BAD)["containerStatuses"][0]
    assert found["restartCount"] == 1
    assert found["lastState"]["terminated"]["exitCode"] == 137


def test_deleted_pod_is_not_restarted() -> None:
    found = status(pod("Always", deleted=True), last=BAD)
    assert found["phase"] == "Failed"
    assert "terminated" in state(found)


def test_pod_deleted_while_waiting_has_failed() -> None:
    of = pod(deleted=True)
    main = of.spec.containers[0]
    two = msgspec.structs.replace(
        of.spec, containers=(main, msgspec.structs.replace(main, name="beside"))
    )
    of = msgspec.structs.replace(of, spec=two)
    views = {
        "main": pod_decisions.ContainerView(last=BAD._replace(exit_code=0, signal=0)),
        "beside": pod_decisions.ContainerView(reason="CreateContainerError", message="no command"),
    }
    facts = statuses.PodFacts("127.0.0.1", NOW)
    assert statuses.status(of, views, facts)["phase"] == "Failed"
    running = views | {"main": pod_decisions.ContainerView(last=RUNNING)}
    assert statuses.status(of, running, facts)["phase"] == "Pending"


def test_transition_times_change_only_with_status() -> None:
    first = status(pod(), last=RUNNING)
    second = status(pod(**first), now=NOW + 50, last=RUNNING)
    assert second == first
    third = status(pod(**first), now=NOW + 50, last=BAD)
    ready = next(c for c in third["conditions"] if c["type"] == "Ready")
    assert ready["lastTransitionTime"] == "2023-11-14T22:14:10Z"
    assert third["startTime"] == first["startTime"]


def pod_with_init_containers(policy: str = "Never", **status: Any) -> pod_types.Pod:
    spec = {
        "initContainers": [
            {"name": "first"},
            {"name": "side", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "a"}, {"name": "b"}],
        "restartPolicy": policy,
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, pod_types.Pod)


def status_of_all(of: pod_types.Pod, **records: shim_container.ContainerRecord) -> dict[str, Any]:
    views = {name: pod_decisions.ContainerView(last=record) for name, record in records.items()}
    return statuses.status(of, views, statuses.PodFacts("127.0.0.1", NOW))


OK = RUNNING._replace(exit_code=0, finished_at=NOW + 1)


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["conditions"]}


def test_pod_is_pending_until_init_containers_finish() -> None:
    found = status_of_all(pod_with_init_containers(), first=RUNNING)
    assert found["phase"] == "Pending"
    assert conditions(found)["Initialized"] == "False"
    initialised = next(c for c in found["conditions"] if c["type"] == "Initialized")
    assert initialised["message"] == "containers with incomplete status: [first side]"
    states = [s["state"] for s in found["containerStatuses"]]
    assert states == [{"waiting": {"reason": "PodInitializing"}}] * 2


def test_failed_init_container_fails_the_pod() -> None:
    assert status_of_all(pod_with_init_containers(), first=BAD)["phase"] == "Failed"
    assert status_of_all(pod_with_init_containers("OnFailure"), first=BAD)["phase"] == "Pending"


def test_pod_runs_until_last_container_and_sidecar_end() -> None:
    running = {"first": OK, "side": RUNNING, "a": OK}
    assert status_of_all(pod_with_init_containers(), **running, b=RUNNING)["phase"] == "Running"
    assert status_of_all(pod_with_init_containers(), **running, b=OK)["phase"] == "Running"
    assert (
        status_of_all(pod_with_init_containers(), first=OK, side=OK, a=OK, b=OK)["phase"]
        == "Succeeded"
    )
    assert (
        status_of_all(pod_with_init_containers(), first=OK, side=BAD, a=OK, b=OK)["phase"]
        == "Succeeded"
    )
    assert (
        status_of_all(pod_with_init_containers(), first=OK, side=OK, a=OK, b=BAD)["phase"]
        == "Failed"
    )


def test_final_status_of_a_sidecar_is_terminated() -> None:
    """Not that it waits for a start that never comes."""
    found = status_of_all(pod_with_init_containers(), first=OK, side=OK, a=OK, b=OK)
    assert found["initContainerStatuses"][1]["state"]["terminated"]["exitCode"] == 0
    going_on = status_of_all(pod_with_init_containers(), first=OK, side=OK, a=OK, b=RUNNING)
    assert "waiting" in going_on["initContainerStatuses"][1]["state"]


def test_readiness_follows_probes() -> None:
    views = {"main": pod_decisions.ContainerView(last=RUNNING, ready=False)}
    found = statuses.status(pod(), views, statuses.PodFacts("127.0.0.1", NOW))
    assert conditions(found)["Ready"] == "False"
    assert found["containerStatuses"][0]["started"]
    views = {"main": pod_decisions.ContainerView(last=RUNNING, started=False)}
    found = statuses.status(pod(), views, statuses.PodFacts("127.0.0.1", NOW))
    assert not found["containerStatuses"][0]["started"]


def test_expired_deadline_fails_the_pod_after_containers_end() -> None:
    of = pod(startTime="2023-11-14T22:13:00Z")
    late = msgspec.structs.replace(
        of, spec=msgspec.structs.replace(of.spec, active_deadline_seconds=10)
    )
    facts = statuses.PodFacts("127.0.0.1", NOW)
    assert (
        statuses.status(late, {"main": pod_decisions.ContainerView(last=RUNNING)}, facts)["phase"]
        == "Running"
    )
    found = statuses.status(late, {"main": pod_decisions.ContainerView(last=BAD)}, facts)
    assert (found["phase"], found["reason"]) == ("Failed", "DeadlineExceeded")


def pod_with_ephemeral(count: int = 2) -> pod_types.Pod:
    """A Pod with ephemeral containers `e0`, `e1` and so on."""
    added = tuple(pod_types.EphemeralContainer(name=f"e{n}", image="i") for n in range(count))
    of = pod()
    spec = msgspec.structs.replace(of.spec, ephemeral_containers=added)
    return msgspec.structs.replace(of, spec=spec)


def ephemeral(
    of: pod_types.Pod, *, before: Any = None, **records: shim_container.ContainerRecord
) -> dict[str, Any]:
    """The status while the main container runs."""
    views = {name: pod_decisions.ContainerView(last=record) for name, record in records.items()}
    facts = statuses.PodFacts("127.0.0.1", NOW, before)
    return statuses.status(of, {"main": pod_decisions.ContainerView(last=RUNNING), **views}, facts)


def test_ephemeral_containers_do_not_affect_the_phase() -> None:
    found = ephemeral(pod_with_ephemeral(), e0=BAD._replace(id="u/e0/0"))
    assert found["phase"] == "Running"
    assert next(c for c in found["conditions"] if c["type"] == "Ready")["status"] == "True"
    first, second = found[statuses.EPHEMERAL]
    ended = first["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")
    assert (first["ready"], first["restartCount"], first["lastState"]) == (False, 0, {})
    assert first["containerID"] == "kiln://u/e0/0"
    assert second["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert statuses.EPHEMERAL not in status(pod(), last=RUNNING)


def test_pod_is_running_until_ephemeral_containers_end() -> None:
    of = pod_with_ephemeral(1)
    views = {
        "main": pod_decisions.ContainerView(last=BAD),
        "e0": pod_decisions.ContainerView(last=RUNNING),
    }
    facts = statuses.PodFacts("127.0.0.1", NOW)
    assert statuses.status(of, views, facts)["phase"] == "Running"
    views["e0"] = pod_decisions.ContainerView(last=BAD)
    assert statuses.status(of, views, facts)["phase"] == "Failed"


def test_status_of_ended_ephemeral_container_is_reused() -> None:
    before = ephemeral(pod_with_ephemeral(), e0=BAD._replace(id="u/e0/0"))
    after = ephemeral(pod_with_ephemeral(3), before=before, e1=RUNNING._replace(id="u/e1/0"))
    assert after[statuses.EPHEMERAL][0] is before[statuses.EPHEMERAL][0]
    assert "running" in after[statuses.EPHEMERAL][1]["state"]


def test_only_starts_can_be_reported_late() -> None:
    before = ephemeral(pod_with_ephemeral(), e0=BAD._replace(id="u/e0/0"))
    started = ephemeral(pod_with_ephemeral(3), before=before, e1=RUNNING._replace(id="u/e1/0"))
    assert statuses.only_started(before, started)
    ended = ephemeral(pod_with_ephemeral(3), before=started, e1=BAD._replace(id="u/e1/0"))
    assert not statuses.only_started(started, ended)
    views = {"e0": pod_decisions.ContainerView(reason="r", message="it cannot run here")}
    waits = statuses.status(pod_with_ephemeral(), views, statuses.PodFacts("127.0.0.1", NOW))
    assert not statuses.only_started({}, waits)


def test_ephemeral_patch_contains_only_changes() -> None:
    none = ephemeral(pod_with_ephemeral(0))
    before = ephemeral(pod_with_ephemeral(), e0=BAD._replace(id="u/e0/0"))
    after = ephemeral(pod_with_ephemeral(3), before=before, e1=BAD._replace(id="u/e1/0"))
    _, _, e2 = new = after[statuses.EPHEMERAL]
    test = {"op": "test", "path": "/metadata/uid", "value": "u"}
    path = f"/status/{statuses.EPHEMERAL}"
    assert statuses.ephemeral_patch("u", none, after) == [
        test,
        {"op": "add", "path": path, "value": new},
    ]
    assert statuses.ephemeral_patch("u", before, after) == [
        test,
        {"op": "test", "path": f"{path}/1/name", "value": "e1"},
        {"op": "replace", "path": f"{path}/1", "value": new[1]},
        {"op": "add", "path": f"{path}/-", "value": e2},
    ]
    turned = {**after, statuses.EPHEMERAL: new[::-1]}
    assert statuses.ephemeral_patch("u", before, turned)[1]["value"] == new[::-1]
