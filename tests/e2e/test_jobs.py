"""Jobs and JobConfigs under `kiln up`, as objects that users create."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support import up_server as up_support
from support import waiting

PATIENCE_S = 30.0
FINAL = {"Succeeded", "Failed", "Killed", "AdmissionError"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("jobs"), slots=4) as made:
        yield made


def apply(server: up_support.UpServer, *objects: dict[str, Any]) -> None:
    """Create or change objects."""
    text = "\n---\n".join(json.dumps(one) for one in objects)
    server.kiln("apply", "-f", "-", stdin=text)


def job(name: str, *argv: str, **spec: Any) -> dict[str, Any]:
    """Return a Job; `template`: more of its template."""
    template = {"taskTemplate": {"command": list(argv)}, **spec.pop("template", {})}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def run(name: str, config: str, **spec: Any) -> dict[str, Any]:
    """Return a Job of a JobConfig."""
    made = job(name)
    made["spec"] = {"configName": config, **spec}
    return made


def config(name: str, *argv: str, policy: str = "Allow", **spec: Any) -> dict[str, Any]:
    """Return a JobConfig; `template`: more of its template, `concurrency`: more of that."""
    template = {"taskTemplate": {"command": list(argv)}, **spec.pop("template", {})}
    concurrency = {"policy": policy, **spec.pop("concurrency", {})}
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "JobConfig",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, "concurrency": concurrency, **spec},
    }


def status(server: up_support.UpServer, name: str, kind: str = "jobs") -> dict[str, Any]:
    """Return the status of an object, empty before it has one."""
    return dict(server.get(kind, name).get("status") or {})


def wait_for(
    server: up_support.UpServer,
    name: str,
    what: Callable[[dict[str, Any]], bool],
    *,
    kind: str = "jobs",
) -> dict[str, Any]:
    """Wait until `what` is true of the status and return it."""
    waiting.wait_until(
        lambda: what(status(server, name, kind)),
        what=f"{kind} {name}: {status(server, name, kind)}",
        timeout_s=PATIENCE_S,
    )
    return status(server, name, kind)


def wait_phase(server: up_support.UpServer, name: str, *phases: str) -> dict[str, Any]:
    """Wait for one of these phases and return the status; another final phase fails at once."""

    def reached(found: dict[str, Any]) -> bool:
        phase = found.get("phase")
        assert phase in phases or phase not in FINAL, found
        return phase in phases

    return wait_for(server, name, reached)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def append(path: Path, what: str) -> tuple[str, str, str]:
    return "sh", "-c", f"echo {what} >> {path}"


# One Job


def test_job_of_one_task_has_its_result(server: up_support.UpServer) -> None:
    apply(server, job("one", "sh", "-c", "echo 42 > $KILN_OUTPUT"))
    found = wait_phase(server, "one", "Succeeded")
    assert found["result"]["value"] == 42
    assert found["state"] == "Finished"
    assert found["condition"]["finished"]["result"] == "Success"
    assert found["createdTasks"] == 1
    assert found["tasks"][0]["name"] == "one-0"
    conditions = {c["type"]: c["status"] for c in found["conditions"]}
    assert conditions == {"Valid": "True", "Started": "True", "Finished": "True"}


def test_indexes_have_their_variables(server: up_support.UpServer, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    matrix = {"city": ["oslo", "lima"], "floor": ["1", "2"]}
    word = "${task.index_matrix.city}/${task.index_matrix.floor}/${task.name}/${job.name}/$HOME"
    apply(
        server,
        job("matrix", *append(seen, word), template={"parallelism": {"withMatrix": matrix}}),
    )
    found = wait_phase(server, "matrix", "Succeeded")
    assert found["indexes"] | {"running": 0} == {
        "total": 4, "succeeded": 4, "failed": 0, "running": 0, "failedIndexes": "",
    }  # fmt: skip
    assert found["parallelStatus"] == {"complete": True, "successful": True}
    assert sorted(word.rpartition("/matrix/")[0] for word in lines(seen)) == [
        "lima/1/matrix-2", "lima/2/matrix-3", "oslo/1/matrix-0", "oslo/2/matrix-1",
    ]  # fmt: skip
    assert found["tasks"][0]["parallelIndex"]["matrixValues"] == {"city": "oslo", "floor": "1"}


def test_first_failure_ends_the_others(server: up_support.UpServer) -> None:
    argv = ("sh", "-c", "[ ${task.index_num} != 1 ] && exec sleep 60; exit 3")
    apply(server, job("strict", *argv, template={"parallelism": {"withCount": 3}}))
    found = wait_phase(server, "strict", "Failed")
    assert found["reason"] == "IndexesFailed"
    assert "exit code 3" in found["message"]
    assert found["indexes"]["failedIndexes"] == "1"


def test_first_success_ends_the_others(server: up_support.UpServer) -> None:
    argv = ("sh", "-c", "[ ${task.index_num} != 1 ] && exec sleep 60; exit 0")
    parallelism = {"withCount": 3, "completionStrategy": "AnySuccessful"}
    apply(server, job("any", *argv, template={"parallelism": parallelism}))
    assert wait_phase(server, "any", "Succeeded")["indexes"]["succeeded"] == 1


def test_job_tolerates_failed_indexes(server: up_support.UpServer) -> None:
    argv = ("sh", "-c", "[ ${task.index_num} -lt 8 ]")
    parallelism = {"withCount": 10, "completionStrategy": {"maxFailed": "20%"}}
    apply(server, job("some", *argv, template={"parallelism": parallelism}))
    found = wait_phase(server, "some", "Succeeded")
    assert found["indexes"]["failedIndexes"] == "8-9"


def test_retries_are_per_index(server: up_support.UpServer, tmp_path: Path) -> None:
    marks = tmp_path / "mark-${task.index_num}"
    argv = ("sh", "-c", f"echo x >> {marks}; [ $(wc -l < {marks}) -gt ${{task.index_num}} ]")
    template = {"maxAttempts": 3, "retryDelaySeconds": 0, "parallelism": {"withCount": 3}}
    apply(server, job("retried", *argv, template=template))
    found = wait_phase(server, "retried", "Succeeded")
    assert [len(lines(tmp_path / f"mark-{index}")) for index in range(3)] == [1, 2, 3]
    assert found["createdTasks"] == 6


def test_retried_indexes_are_reported(server: up_support.UpServer) -> None:
    argv = ("sh", "-c", "[ ${task.index_num} != 1 ]")
    retry = {"maxAttempts": 2, "delaySeconds": 600}
    apply(server, job("waiting", *argv, template={"retry": retry, "parallelism": {"withCount": 2}}))
    found = wait_for(server, "waiting", lambda s: s.get("phase") == "RetryBackoff")
    assert found["message"].startswith("index 1 is tried again")
    server.kubectl("delete", "kjob", "waiting")


def test_finalizer_gets_the_results_in_order(server: up_support.UpServer) -> None:
    program = (
        "import json, os; "
        "found = json.load(open(os.environ['KILN_INPUT']))['results']; "
        "json.dump(found, open(os.environ['KILN_OUTPUT'], 'w'))"
    )
    finalizer = {"taskTemplate": {"command": ["python3", "-c", program]}}
    template = {"parallelism": {"withCount": 4}, "finalizer": finalizer}
    argv = ("sh", "-c", "echo $((${task.index_num} * 10)) > $KILN_OUTPUT")
    apply(server, job("sum", *argv, template=template))
    assert wait_phase(server, "sum", "Succeeded")["result"]["value"] == [0, 10, 20, 30]


def test_kill_ends_running_tasks(server: up_support.UpServer, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    argv = ("sh", "-c", f"echo $$ >> {pids}; exec sleep 300")
    template = {"parallelism": {"withCount": 2}, "timeouts": {"killGraceSeconds": 1}}
    apply(server, job("doomed", *argv, template=template))
    waiting.wait_until(lambda: len(lines(pids)) == 2, what="both run", timeout_s=PATIENCE_S)
    kill = {"spec": {"killTimestamp": datetime.now(UTC).isoformat(timespec="seconds")}}
    server.kubectl("patch", "kjob", "doomed", "--type", "merge", "-p", json.dumps(kill))
    found = wait_phase(server, "doomed", "Killed")
    assert not [pid for pid in lines(pids) if Path(f"/proc/{pid}").exists()]
    assert {c["type"]: c["status"] for c in found["conditions"]}["Stopped"] == "True"


def test_deleting_a_job_ends_its_tasks(server: up_support.UpServer, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    template = {"timeouts": {"killGraceSeconds": 1}}
    apply(server, job("gone", "sh", "-c", f"echo $$ >> {pids}; exec sleep 300", template=template))
    waiting.wait_until(lambda: len(lines(pids)) == 1, what="it runs", timeout_s=PATIENCE_S)
    server.kubectl("delete", "kjob", "gone")
    waiting.wait_until(
        lambda: not Path(f"/proc/{lines(pids)[0]}").exists(), what="it ends", timeout_s=PATIENCE_S
    )


def test_higher_run_repeats_failed_indexes(server: up_support.UpServer, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    argv = (
        "sh",
        "-c",
        f"echo ${{task.index_num}} >> {log}; [ ${{task.index_num}} != 2 ] || [ -e {gate} ]",
    )
    parallelism = {"withCount": 4, "completionStrategy": {"minSuccessful": 4}}
    made = job("again", *argv, template={"parallelism": parallelism})
    apply(server, made)
    assert wait_phase(server, "again", "Failed")["indexes"]["failedIndexes"] == "2"
    gate.touch()
    before = len(lines(log))
    server.kubectl("patch", "kjob", "again", "--type", "merge", "-p", '{"spec": {"run": 2}}')
    found = wait_for(server, "again", lambda s: s.get("run") == 2 and s["phase"] == "Succeeded")
    assert found["indexes"]["succeeded"] == 4
    assert lines(log)[before:].count("2") == 1
    assert sorted(set(lines(log))) == ["0", "1", "2", "3"]


def test_job_is_deleted_after_its_time_to_live(server: up_support.UpServer) -> None:
    apply(server, job("short-lived", "true", ttlSecondsAfterFinished=1))
    waiting.wait_until(
        lambda: "short-lived" not in server.kubectl("get", "kjob", "-o", "name").stdout,
        what="it is deleted",
        timeout_s=PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"template": {"parallelism": {"withCount": 1, "withKeys": ["a"]}}}, "parallelism"),
        ({"template": {"retry": {}, "maxAttempts": 2}}, "maxAttempts"),
        ({"dependsOn": [{"name": "bad"}]}, "dependsOn"),
    ],
)
def test_invalid_jobs_are_rejected(
    server: up_support.UpServer, spec: dict[str, Any], text: str
) -> None:
    made = job("bad", "true", **spec)
    done = server.kiln("apply", "-f", "-", stdin=json.dumps(made), check=False)
    assert done.returncode != 0
    assert text in done.stderr


# What a Job waits for


def test_dependency_is_waited_for(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    after = job("after", *append(log, "after"), dependsOn=[{"name": "before"}])
    apply(server, after)
    found = wait_for(server, "after", lambda s: s.get("reason") == "WaitingForDependency")
    assert "Job before does not exist" in found["message"]
    apply(server, job("before", *append(log, "before")))
    wait_phase(server, "after", "Succeeded")
    assert lines(log) == ["before", "after"]


def test_message_names_the_current_wait(server: up_support.UpServer) -> None:
    apply(server, job("behind", "true", dependsOn=[{"name": "ahead"}]))
    wait_for(server, "behind", lambda s: "Job ahead does not exist" in s.get("message", ""))
    apply(server, job("ahead", "sleep", "300", template={"timeouts": {"killGraceSeconds": 1}}))
    wait_for(server, "behind", lambda s: "Job ahead is not over" in s.get("message", ""))
    server.kubectl("delete", "kjob", "ahead", "behind")


def test_failed_dependency_fails_the_job(server: up_support.UpServer) -> None:
    apply(
        server,
        job("bad-base", "false"),
        job("on-base", "true", dependsOn=[{"name": "bad-base"}]),
        job("anyway", "true", dependsOn=[{"name": "bad-base", "outcome": "Finished"}]),
    )
    found = wait_phase(server, "on-base", "Failed")
    assert found["reason"] == "DependencyFailed"
    assert "Job bad-base is Failed" in found["message"]
    wait_phase(server, "anyway", "Succeeded")


def test_jobs_that_wait_for_each_other_fail(server: up_support.UpServer) -> None:
    apply(
        server,
        job("ring-1", "true", dependsOn=[{"name": "ring-2"}]),
        job("ring-2", "true", dependsOn=[{"name": "ring-3"}]),
        job("ring-3", "true", dependsOn=[{"name": "ring-1"}]),
    )
    found = [wait_phase(server, f"ring-{number}", "Failed") for number in (1, 2, 3)]
    assert {one["reason"] for one in found} == {"DependencyFailed"}
    assert any("wait for each other" in one["message"] for one in found)


def test_indexes_of_a_list_that_a_task_returns(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    template = {"parallelism": {"withResultOf": {"task": "lister", "path": "$.files"}}}
    apply(server, job("each", *append(log, "${task.index_item}"), template=template))
    wait_for(server, "each", lambda s: s.get("reason") == "WaitingForTask")
    lister = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "lister"},
        "spec": {"command": ["sh", "-c", 'echo \'{"files": ["a", "b", "c"]}\' > $KILN_OUTPUT']},
    }
    apply(server, lister)
    assert wait_phase(server, "each", "Succeeded")["indexes"]["total"] == 3
    assert sorted(lines(log)) == ["a", "b", "c"]


LIST_JOB = {
    "finalizer": {"taskTemplate": {"command": ["sh", "-c", 'cp "$KILN_INPUT" "$KILN_OUTPUT"']}}
}
"""More of a template: its result has the list `results`."""


def test_indexes_of_a_list_that_a_job_returns(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    listed = {"parallelism": {"withResultOf": {"job": "numbers", "path": "$.results"}}}
    apply(server, job("of-numbers", *append(log, "${task.index_item}"), template=listed))
    status = wait_for(server, "of-numbers", lambda s: s.get("reason") == "WaitingForDependency")
    assert status["message"] == "Job numbers does not exist in namespace default"
    prints = ("sh", "-c", "echo ${task.index_num} > $KILN_OUTPUT")
    apply(server, job("numbers", *prints, template={"parallelism": {"withCount": 3}, **LIST_JOB}))
    assert wait_phase(server, "of-numbers", "Succeeded")["indexes"]["total"] == 3
    assert sorted(lines(log)) == ["0", "1", "2"]


def test_list_of_a_job_without_a_result_fails(server: up_support.UpServer) -> None:
    listed = {"parallelism": {"withResultOf": {"job": "many"}}}
    apply(
        server,
        job("many", "true", template={"parallelism": {"withCount": 2}}),
        job("of-many", "true", template=listed),
    )
    found = wait_phase(server, "of-many", "Failed")
    assert found["reason"] == "InputFailed"
    assert "Job many has no result: give it a finalizer" in found["message"]


def test_cluster_may_come_later(server: up_support.UpServer) -> None:
    made = job("without-cluster", "true")
    made["spec"]["template"]["taskTemplate"]["clusterName"] = "late"
    apply(server, made)
    status = wait_for(
        server, "without-cluster", lambda status: status.get("reason") == "WaitingForCluster"
    )
    assert status["message"] == "TaskCluster late does not exist in namespace default"
    cluster = {"kind": "TaskCluster", "metadata": {"name": "late"}, "spec": {"replicas": 1}}
    apply(server, {"apiVersion": "kilnwork.dev/v1alpha1", **cluster})
    wait_phase(server, "without-cluster", "Succeeded")
    server.kubectl("delete", "taskcluster", "late")


def test_job_starts_after_its_start_time(server: up_support.UpServer) -> None:
    at, far = (
        datetime.fromtimestamp(time.time() + after_s, UTC).isoformat(timespec="seconds")
        for after_s in (6, 3600)
    )
    apply(
        server,
        job("later", "true", startPolicy={"startAfter": at}),
        job("much-later", "true", startPolicy={"startAfter": far}),
    )
    wait_for(server, "much-later", lambda s: s.get("reason") == "NotYetDue")
    server.kubectl("delete", "kjob", "much-later")
    found = wait_phase(server, "later", "Succeeded")
    assert datetime.fromisoformat(found["startTime"]) >= datetime.fromisoformat(at)


def test_locks_exclude_each_other(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    argv = ("sh", "-c", f"echo in >> {log}; sleep 0.3; echo out >> {log}")
    lock = {"locks": [{"name": "warehouse"}]}
    apply(server, *(job(f"locked-{n}", *argv, **lock) for n in range(3)))
    for number in range(3):
        wait_phase(server, f"locked-{number}", "Succeeded")
    assert lines(log) == ["in", "out"] * 3


ON_WITHOUT_QUOTES = """
apiVersion: kilnwork.dev/v1alpha1
kind: Job
metadata: {name: NAME}
spec:
  template:
    taskTemplate: {command: ["false"]}
    retry: {maxAttempts: 2, delaySeconds: 0, on: ["exit:9"]}
    hooks:
      - FIELD: [Failed]
        taskTemplate: {command: [sh, -c, "echo ${job.phase} >> LOG"]}
"""


@pytest.mark.parametrize(
    ("field", "tool"), [("on", "kiln"), ('"on"', "kiln"), ("phases", "kiln"), ("phases", "kubectl")]
)
def test_hook_phases_in_each_form_run(
    server: up_support.UpServer, tmp_path: Path, field: str, tool: str
) -> None:
    log, name = tmp_path / "log", f"hook-{tool}-{len(field)}"
    text = ON_WITHOUT_QUOTES.replace("LOG", str(log)).replace("FIELD", field).replace("NAME", name)
    if tool == "kubectl":
        text = text.replace(" on:", ' "on":')
    getattr(server, tool)("apply", "-f", "-", stdin=text)
    wait_phase(server, name, "Failed")
    waiting.wait_until(lambda: lines(log) == ["Failed"], what="the hook", timeout_s=PATIENCE_S)


def test_hook_without_phases_says_what_to_write(server: up_support.UpServer) -> None:
    made = job("hookless", "true", template={"hooks": [{"taskTemplate": {"command": ["true"]}}]})
    refused = server.kiln("apply", "-f", "-", stdin=json.dumps(made), check=False)
    assert refused.returncode != 0
    assert "spec.template.hooks[0].phases" in refused.stderr
    assert "give one of phases and on, which YAML reads as true" in refused.stderr


def test_field_without_effect_is_warned_of(server: up_support.UpServer) -> None:
    template = {"forbidTaskForceDeletion": True}
    made = [job("forced", "true", template=template), config("forced", "true", template=template)]
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": made})
    warned = server.kubectl("apply", "-f", "-", stdin=text).stderr
    assert "spec.template.forbidTaskForceDeletion: has no effect here" in warned
    assert "spec.template.spec.forbidTaskForceDeletion: has no effect here" in warned
    for kind, state in (("jobs", "phase"), ("jobconfigs", "state")):
        found = wait_for(server, "forced", lambda s, at=state: bool(s.get(at)), kind=kind)  # type: ignore[misc]
        ignored = [one for one in found["conditions"] if one["type"] == "FieldsIgnored"]
        assert len(ignored) == 1
        assert "nothing of a task is removed by force" in ignored[0]["message"]


def test_deleted_job_waits_for_a_foreign_finalizer(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = f"trap 'echo end >> {log}; exit 1' TERM; echo begin >> {log}; sleep 60 & wait"
    made = job("kept", "sh", "-c", script)
    made["metadata"]["finalizers"] = ["example.com/audit"]
    apply(server, made)
    waiting.wait_until(lambda: lines(log), what="its trap is set", timeout_s=PATIENCE_S)
    wait_for(server, "kept", lambda s: s.get("phase") == "Running")
    server.kubectl("delete", "job.kilnwork.dev/kept", "--wait=false")
    found = wait_phase(server, "kept", "Killed")
    assert found["message"] == "its object was deleted"
    assert found.get("runningTasks", 0) == 0
    assert lines(log) == ["begin", "end"]
    sentence = server.kiln("why", "job/kept").stdout
    assert "It is being deleted, and stays until example.com/audit is removed." in sentence
    patch = json.dumps({"metadata": {"finalizers": None}})
    server.kubectl("patch", "job.kilnwork.dev/kept", "--type=merge", "-p", patch)
    gone = server.kubectl("get", "job.kilnwork.dev/kept", check=False)
    assert gone.returncode != 0


def test_options_are_printed_as_json_schema(server: up_support.UpServer) -> None:
    options = [{"type": "Select", "name": "city", "select": {"values": ["oslo", "lima"]}}]
    apply(server, config("form", "true", option={"options": options}))
    schema = json.loads(server.kiln("run-job", "form", "--options-schema").stdout)
    assert schema["properties"]["city"]["enum"] == ["oslo", "lima", ""]
    refused = server.kiln("run-job", "form", "--options-schema", "--watch", check=False)
    assert "give nothing but -o with it" in refused.stderr


# JobConfigs


def steps(prefix: str, log: Path, *, load: str = "true", **spec: Any) -> list[dict[str, Any]]:
    """Return two JobConfigs that run each second, the second of which depends on the first."""
    schedule: dict[str, Any] = {"schedule": {"cron": {"expression": "* * * * * * *"}}}
    needs: dict[str, Any] = {"dependsOn": [{"kind": "JobConfig", "name": f"{prefix}-load"}]}
    writes = ("sh", "-c", f"{load} && echo load=${{job.scheduled_time}} >> {log}")
    return [
        config(f"{prefix}-load", *writes, **schedule, **spec),
        config(f"{prefix}-use", *append(log, "use=${job.scheduled_time}"), **schedule, **needs),
    ]


def stop(server: up_support.UpServer, *names: str) -> None:
    server.kiln("disable", *names)
    server.kiln("delete", *(f"jobconfig/{name}" for name in names))


def jobs_of(server: up_support.UpServer, name: str) -> list[dict[str, Any]]:
    text = server.kubectl("get", "jobs.kilnwork.dev", "-o", "json").stdout
    return [one for one in json.loads(text)["items"] if one["metadata"]["name"].startswith(name)]


def phases(server: up_support.UpServer, name: str) -> list[str]:
    return [(one.get("status") or {}).get("phase", "") for one in jobs_of(server, f"{name}-")]


def test_jobs_of_one_tick_depend_on_each_other(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    made = steps("tick", log, load="sleep 1.5")
    apply(server, *reversed(made))
    waiting.wait_until(
        lambda: phases(server, "tick-use").count("Succeeded") >= 4,
        what="four ticks",
        timeout_s=PATIENCE_S,
    )
    stop(server, "tick-load", "tick-use")
    written = lines(log)
    used, loaded = (
        [line.removeprefix(what) for line in written if line.startswith(what)]
        for what in ("use=", "load=")
    )
    # The first may be of a tick before there was tick-load: it waits for the next one's Job.
    assert set(used[1:]) <= set(loaded)
    assert len(used) >= 4
    for one in used[1:]:
        assert written.index(f"load={one}") < written.index(f"use={one}")


def test_job_of_a_tick_fails_with_that_of_the_same_tick(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    apply(server, *steps("bad", tmp_path / "log", load="false"))
    waiting.wait_until(
        lambda: "Failed" in phases(server, "bad-use"), what="a failure", timeout_s=PATIENCE_S
    )
    failed = [
        one for one in jobs_of(server, "bad-use-") if one.get("status", {}).get("phase") == "Failed"
    ]
    stop(server, "bad-load", "bad-use")
    for one in failed:
        tick = one["metadata"]["name"].rpartition("-")[2]
        assert one["status"]["reason"] == "DependencyFailed"
        assert f"Job bad-load-{tick} of JobConfig bad-load is Failed" in one["status"]["message"]
    assert not lines(tmp_path / "log")


def test_job_waits_for_the_first_job_of_a_config(server: up_support.UpServer) -> None:
    needs: dict[str, Any] = {"dependsOn": [{"kind": "JobConfig", "name": "by-hand"}]}
    apply(server, config("after-hand", "true", **needs))
    apply(server, run("waits-for-hand", "after-hand"))
    status = wait_for(server, "waits-for-hand", lambda s: s.get("reason") == "WaitingForDependency")
    assert status["message"] == "JobConfig by-hand does not exist in namespace default"
    apply(server, config("by-hand", "true"))
    status = wait_for(server, "waits-for-hand", lambda s: "has no Job" in s.get("message", ""))
    assert "kiln run-job by-hand" in server.kiln("why", "job/waits-for-hand").stdout
    apply(server, run("by-hand-1", "by-hand"))
    wait_phase(server, "waits-for-hand", "Succeeded")
    apply(server, run("at-once", "after-hand"))
    wait_phase(server, "at-once", "Succeeded")


def test_jobconfigs_that_wait_for_each_other_fail(server: up_support.UpServer) -> None:
    def needs(name: str) -> dict[str, Any]:
        return {"dependsOn": [{"kind": "JobConfig", "name": name}]}

    apply(server, config("round-1", "true", **needs("round-2")))
    wait_for(server, "round-1", lambda s: s.get("state") == "Ready", kind="jobconfigs")
    apply(server, config("round-2", "true", **needs("round-1")))
    for name in ("round-1", "round-2"):
        wait_for(server, name, lambda s: s.get("state") == "Invalid", kind="jobconfigs")
    sentence = server.kiln("why", "jobconfig/round-1").stdout
    assert "JobConfigs wait for each other: round-1 -> round-2 -> round-1" in sentence
    apply(server, config("round-2", "true"))
    for name in ("round-1", "round-2"):
        wait_for(server, name, lambda s: s.get("state") == "Ready", kind="jobconfigs")


def test_job_of_a_config_has_its_template_and_options(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    options = [
        {"type": "String", "name": "who", "required": True},
        {"type": "Bool", "name": "loud", "bool": {"format": "YesNo"}},
    ]
    apply(
        server,
        config("greet", *append(log, "${option.who}-${option.loud}"), option={"options": options}),
        run("greet-ada", "greet", optionValues="who: Ada\nloud: true\n"),
        run("greet-unset", "greet"),
        run("greet-typo", "greet", optionValues={"who": "Ada", "load": True}),
    )
    wait_phase(server, "greet-ada", "Succeeded")
    assert lines(log) == ["Ada-yes"]
    made = server.get("jobs", "greet-ada")
    assert "configName" not in made["spec"]
    assert made["metadata"]["ownerReferences"][0]["name"] == "greet"
    assert "who" in wait_phase(server, "greet-unset", "AdmissionError")["message"]
    assert "load" in wait_phase(server, "greet-typo", "AdmissionError")["message"]


def test_invalid_job_is_checked_again_in_a_higher_run(
    server: up_support.UpServer,
) -> None:
    strict = {"type": "String", "name": "who", "required": True}
    apply(server, config("strict", "echo", "${option.who}", option={"options": [strict]}))
    apply(server, run("mended", "strict"))
    assert "who" in wait_phase(server, "mended", "AdmissionError")["message"]
    mended = {"type": "String", "name": "who", "string": {"default": "Ada"}}
    apply(server, config("strict", "echo", "${option.who}", option={"options": [mended]}))
    server.kubectl("patch", "kjob", "mended", "--type=merge", "-p", '{"spec": {"run": 2}}')
    found = wait_for(server, "mended", lambda s: s.get("run") == 2 and s["phase"] in FINAL)
    assert found["phase"] == "Succeeded"


def test_config_may_come_later(server: up_support.UpServer) -> None:
    apply(server, run("early", "late-config"))
    wait_for(server, "early", lambda s: s.get("reason") == "WaitingForJobConfig")
    apply(server, config("late-config", "true"))
    wait_phase(server, "early", "Succeeded")


def test_enqueue_keeps_the_order(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    apply(server, config("in-turn", *append(log, "${job.name}"), policy="Enqueue"))
    apply(server, *(run(f"turn-{n}", "in-turn") for n in range(5)))
    for number in range(5):
        wait_phase(server, f"turn-{number}", "Succeeded")
    assert lines(log) == [f"turn-{number}" for number in range(5)]


def test_forbid_refuses_a_second_job(server: up_support.UpServer) -> None:
    apply(server, config("alone", "sleep", "300", policy="Forbid"), run("alone-1", "alone"))
    wait_phase(server, "alone-1", "Running")
    apply(server, run("alone-2", "alone"))
    assert wait_phase(server, "alone-2", "AdmissionError")["reason"] == "Forbidden"
    server.kubectl("patch", "kjob", "alone-2", "--type=merge", "-p", '{"spec": {"run": 2}}')
    again = wait_for(server, "alone-2", lambda s: s.get("run") == 2 and s["phase"] in FINAL)
    assert (again["phase"], again["reason"]) == ("AdmissionError", "Forbidden")
    wait_for(server, "alone", lambda s: s.get("active") == 1, kind="jobconfigs")
    server.kubectl("delete", "kjc", "alone")
    waiting.wait_until(
        lambda: "alone-1" not in server.kubectl("get", "kjob", "-o", "name").stdout,
        what="its Jobs are collected",
        timeout_s=PATIENCE_S,
    )


def test_replace_kills_the_older_job(server: up_support.UpServer) -> None:
    template = {"timeouts": {"killGraceSeconds": 1}}
    argv = ("sh", "-c", "[ ${job.name} = newer ] || exec sleep 300")
    apply(server, config("newest", *argv, policy="Replace", template=template))
    apply(server, run("older", "newest"))
    wait_phase(server, "older", "Running")
    apply(server, run("newer", "newest"))
    wait_phase(server, "newer", "Succeeded")
    assert "newer" in wait_phase(server, "older", "Killed")["message"]


def test_schedule_makes_one_job_for_each_tick(server: up_support.UpServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    schedule = {"cron": {"expression": "* * * * * * *"}}
    argv = append(log, "${job.name}=${job.scheduled_time}")
    apply(server, config("each-second", *argv, schedule=schedule))
    waiting.wait_until(lambda: len(lines(log)) >= 3, what="three ticks", timeout_s=PATIENCE_S)
    off = {"spec": {"schedule": {"disabled": True}}}
    server.kubectl("patch", "kjc", "each-second", "--type", "merge", "-p", json.dumps(off))
    found = wait_for(
        server, "each-second", lambda s: s.get("state") == "ReadyDisabled", kind="jobconfigs"
    )
    assert not found.get("nextRuns")
    waiting.wait_until(
        lambda: set(phases(server, "each-second")) == {"Succeeded"},
        what="what came before is over",
        timeout_s=PATIENCE_S,
    )
    count = len(lines(log))
    assert len(set(lines(log))) == count
    for line in lines(log):
        name, _, at = line.partition("=")
        tick = int(name.rpartition("-")[2])
        assert datetime.fromisoformat(at).timestamp() == tick
    time.sleep(2.2)  # two ticks that must not come
    assert len(lines(log)) == count
    server.kubectl("patch", "kjc", "each-second", "--type", "merge", "-p",
                   json.dumps({"spec": {"schedule": {"disabled": False}}}))  # fmt: skip
    waiting.wait_until(lambda: len(lines(log)) > count, what="it goes on", timeout_s=PATIENCE_S)
    ticks = [int(line.partition("=")[0].rpartition("-")[2]) for line in lines(log)]
    assert ticks[count] - ticks[count - 1] > 2, "what passed while it was disabled is over"
    server.kubectl("delete", "kjc", "each-second")


def clash(server: up_support.UpServer, name: str, log: Path, *, lead_s: int) -> int:
    """Enable a schedule whose next two ticks, `lead_s` from now, already have Jobs of their names.

    Returns the first of these ticks, or 0 if the machine was too slow. One of the Jobs is foreign,
    the other made by a backfill, which is no tick of the schedule.
    """
    schedule = {"cron": {"expression": "* * * * * * *"}, "disabled": True}
    apply(server, config(name, *append(log, "${job.name}"), schedule=schedule))
    first = int(time.time()) + lead_s
    backfilled = run(f"{name}-{first + 1}", name)
    backfilled["metadata"]["annotations"] = {
        "kilnwork.dev/schedule-time": str(first + 1),
        "kilnwork.dev/backfill": "true",
    }
    apply(server, job(f"{name}-{first}", "true"), backfilled)
    wait_phase(server, backfilled["metadata"]["name"], "Succeeded")
    server.kiln("enable", name)
    if time.time() < first:
        return first
    server.kubectl("delete", "kjc", name)
    return 0


def test_ticks_whose_names_are_taken_are_dropped(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    leads = {f"clash-{lead_s}": lead_s for lead_s in (8, 24, 48)}
    tried = ((name, clash(server, name, log, lead_s=lead_s)) for name, lead_s in leads.items())
    name, first = next(pair for pair in tried if pair[1])
    found = wait_for(
        server,
        name,
        lambda s: s.get("missed", {}).get("reasons", {}).get("NameTaken") == 2,
        kind="jobconfigs",
    )
    assert found["missed"]["latestReason"] == "NameTaken"
    waiting.wait_until(
        lambda: f"{name}-{first + 2}" in lines(log), what="the next tick", timeout_s=PATIENCE_S
    )
    assert lines(log).count(f"{name}-{first + 1}") == 1
    server.kubectl("delete", "kjc", name)


def test_invalid_config_is_reported_and_affects_no_other(server: up_support.UpServer) -> None:
    bad = config("not-cron", "true", schedule={"cron": {"expression": "61 * * * *"}})
    done = server.kiln("apply", "-f", "-", stdin=json.dumps(bad), check=False)
    assert done.returncode != 0
    assert "minute" in done.stderr


def test_history_is_kept_to_its_limit(server: up_support.UpServer) -> None:
    limits = {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}
    apply(server, config("history", "true", policy="Enqueue", **limits))
    apply(server, *(run(f"past-{n}", "history") for n in range(3)))

    def left() -> list[str]:
        names = server.kubectl("get", "kjob", "-o", "name").stdout.split()
        return [name for name in names if "/past-" in name]

    waiting.wait_until(
        lambda: left() == ["job.kilnwork.dev/past-2"], what="one is left", timeout_s=PATIENCE_S
    )


def test_config_owns_the_service_of_its_function(server: up_support.UpServer) -> None:
    group, plural = "serving.knative.dev", "services"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Service", "plural": plural, "singular": "service"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    apply(server, definition)
    container = {"image": "example.com/report:1"}
    function = {
        "template": {
            "metadata": {"labels": {"team": "reports"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
        "request": {"method": "POST"},
    }
    made = config("called")
    made["spec"]["template"]["spec"]["taskTemplate"] = {"function": function}
    apply(server, made, run("call", "called"))
    path = f"/apis/{group}/v1/namespaces/default/{plural}/called"

    def service() -> dict[str, Any]:
        done = server.kubectl("get", "--raw", path, check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

    waiting.wait_until(service, what="the Service is there", timeout_s=PATIENCE_S)
    assert service()["metadata"]["ownerReferences"][0]["name"] == "called"
    assert service()["metadata"]["labels"] == {"team": "reports"}
    wait_phase(server, "call", "Starting", "Pending", "Running")
    what = server.get("jobs", "call")["spec"]["template"]["taskTemplate"]["function"]
    assert what["service"] == "called"
    assert "template" not in what
    container["image"] = "example.com/report:2"
    apply(server, made)
    waiting.wait_until(
        lambda: service()["spec"]["template"]["spec"]["containers"] == [container],
        what="the Service changes",
        timeout_s=PATIENCE_S,
    )
    server.kubectl("delete", "kjc", "called")
    waiting.wait_until(lambda: not service(), what="it is collected", timeout_s=PATIENCE_S)
