"""The real worker process against a scripted dispatcher: commands, ends, proof, links, leases."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import attempts, task
from kilnwork.channel import messages
from kilnwork.kit import ids, processes
from support import scripted_hub, short_paths, waiting, worker_process

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED


@pytest.fixture
async def hub() -> AsyncIterator[scripted_hub.ScriptedHub]:
    directory = short_paths.directory()
    found = scripted_hub.ScriptedHub(directory / "channel.sock")
    await found.start()
    yield found
    await found.stop()
    directory.rmdir()


@pytest.fixture
async def worker(
    hub: scripted_hub.ScriptedHub, tmp_path: Path
) -> AsyncIterator[worker_process.WorkerProcess]:
    process = worker_process.WorkerProcess(tmp_path, channel=hub.path)
    process.start()
    try:
        await hub.first(messages.Hello)
        yield process
    finally:
        process.destroy()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


async def test_hello_identifies_the_worker(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hello = await hub.first(messages.Hello)
    assert (hello.role, hello.namespace, hello.cluster) == ("worker", "default", "counter")
    assert (hello.worker, hello.node, hello.slots) == ("counter-0", "node-0", 2)
    assert hello.credential == "opensesame"
    assert len(hello.session) == 16
    assert hello.pod_uid == worker.environment["KILN_POD_UID"]
    assert worker.stop() == 0


@pytest.mark.usefixtures("worker")
async def test_command_runs_and_its_output_arrives_before_its_end(
    hub: scripted_hub.ScriptedHub,
) -> None:
    ref = hub.run("sh", "-c", "echo out; echo err >&2")
    outcome = await hub.outcome(ref)
    assert (outcome.ending, outcome.reason) == (SUCCEEDED, "Succeeded")
    assert (outcome.exit_code, outcome.proof, outcome.result) == (0, True, None)
    assert outcome.started is not None
    assert outcome.finished is not None
    assert outcome.started <= outcome.finished
    assert bytes(hub.logs[ref]) == b"out\nerr\n"
    kinds = [type(m).__name__ for m in hub.seen if getattr(m, "ref", None) == ref]
    assert kinds == ["Started", "Finished"]


@pytest.mark.usefixtures("worker")
async def test_usage_of_a_command_is_reported(hub: scripted_hub.ScriptedHub) -> None:
    code = (
        "import time; held = b'x' * (200 << 20)\n"
        "until = time.process_time() + 0.1\n"
        "while time.process_time() < until: pass\n"
        "raise SystemExit(3)"
    )
    used = (await hub.outcome(hub.run(*python(code)))).usage
    assert used is not None
    assert used.peak_bytes is not None
    assert 200 << 20 < used.peak_bytes < 300 << 20
    assert 0.1 <= used.cpu_s < 2
    small = (await hub.outcome(hub.run("true"))).usage
    assert small == attempts.Usage(small.cpu_s if small else 0.0, None)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("script", "ending", "reason", "code", "retry"),
    [
        ("exit 3", FAILED, "NonZeroExit", 3, False),
        ("exit 75", FAILED, "RetryRequested", 75, True),
        ("kill -TERM $$", FAILED, "NonZeroExit", 143, False),
        ("kill -KILL $$", LOST, "ProcessKilled", 137, False),
        ("sh -c 'kill -KILL $$'; exit $?", FAILED, "NonZeroExit", 137, False),
    ],
)
async def test_exit_status_decides_the_outcome(
    hub: scripted_hub.ScriptedHub,
    *,
    script: str,
    ending: attempts.Ending,
    reason: str,
    code: int,
    retry: bool,
) -> None:
    outcome = await hub.outcome(hub.run("sh", "-c", script))
    assert (outcome.ending, outcome.reason) == (ending, reason)
    assert (outcome.exit_code, outcome.requested_retry) == (code, retry)
    assert outcome.message
    assert outcome.proof


@pytest.mark.usefixtures("worker")
async def test_missing_command_fails_with_the_searched_path(
    hub: scripted_hub.ScriptedHub,
) -> None:
    outcome = await hub.outcome(hub.run("no-such-command", "--help"))
    assert (outcome.ending, outcome.reason) == (FAILED, "CommandNotFound")
    assert "'no-such-command'" in outcome.message
    assert f"PATH={os.environ['PATH']}" in outcome.message
    assert outcome.started is None
    assert hub.all_of(messages.Started) == []


async def test_command_environment_has_nothing_of_the_worker(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    name = "a.task." + "n" * 246
    env = (task.EnvVar(name="COLOUR", value="blue"), task.EnvVar(name="TASK_NAME", value="other"))
    ref = hub.run("env", "-0", name=name, env=env, inputs=b"{}")
    assert (await hub.outcome(ref)).ending is SUCCEEDED
    lines = bytes(hub.logs[ref]).decode().strip("\0").split("\0")
    found = dict(line.split("=", 1) for line in lines)
    assert found["TASK_NAME"] == name
    assert found["TASK_NAMESPACE"] == "default"
    assert found["KILN_TASK_ID"] == ids.task_text(ref.task)
    assert (found["KILN_RUN"], found["KILN_ATTEMPT"]) == ("1", "1")
    assert found["COLOUR"] == "blue"
    assert found["TMPDIR"] == found["KILN_DIR"]
    assert {"PATH", "HOME", "KILN_SOCKET", "KILN_OUTPUT", "KILN_INPUT"} <= set(found)
    own = {"KILN_TOKEN_FILE", "KILN_CHANNEL", "KILN_POD_UID", "KILN_SLOTS", "KUBECONFIG"}
    assert not own & set(found)
    assert worker.environment["KILN_TOKEN_FILE"] not in found.values()


@pytest.mark.usefixtures("worker")
async def test_command_inherits_no_descriptor(hub: scripted_hub.ScriptedHub) -> None:
    ref = hub.run("sh", "-c", "ls -l /proc/self/fd; cat")
    assert (await hub.outcome(ref)).ending is SUCCEEDED
    lines = bytes(hub.logs[ref]).decode().splitlines()
    names = dict(line.split()[8:11:2] for line in lines if "->" in line)
    assert names["0"] == "/dev/null"
    assert names["1"] == names["2"]
    assert names["1"].startswith("pipe:")
    assert set(names) == {"0", "1", "2", "3"}  # 3 is the directory that ls reads


@pytest.mark.usefixtures("worker")
async def test_inputs_are_in_a_file_and_the_directory_is_removed(
    hub: scripted_hub.ScriptedHub,
) -> None:
    script = 'cat "$KILN_INPUT"; mkdir -p "$KILN_DIR/deep/down"; echo; echo "$KILN_DIR"'
    ref = hub.run("sh", "-c", script, inputs=b'{"input": {"count": "0"}}')
    assert (await hub.outcome(ref)).ending is SUCCEEDED
    document, directory = bytes(hub.logs[ref]).decode().splitlines()
    assert json.loads(document) == {"input": {"count": "0"}}
    await waiting.wait_until_async(lambda: not Path(directory).exists(), what="it is removed")


async def test_worker_leaves_no_directory(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    ref = hub.run("sh", "-c", 'dirname "$KILN_DIR"')
    await hub.outcome(ref)
    base = Path(bytes(hub.logs[ref]).decode().strip())
    assert base.stat().st_mode & 0o777 == 0o700
    assert worker.stop() == 0
    assert not base.exists()


async def test_leftovers_of_a_killed_worker_are_removed_by_the_next(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    ref = hub.run("sh", "-c", 'dirname "$KILN_DIR"')
    await hub.outcome(ref)
    base = Path(bytes(hub.logs[ref]).decode().strip())
    worker.destroy()
    assert base.exists()
    hub.seen.clear()
    worker.start()
    await hub.first(messages.Hello)
    assert not base.exists()


async def test_task_may_remove_its_directory_and_more(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    assert (await hub.outcome(hub.run("sh", "-c", 'rm -rf "$KILN_DIR"'))).ending is SUCCEEDED
    script = 'rm -rf "$(dirname "$KILN_DIR")"'
    assert (await hub.outcome(hub.run("sh", "-c", script))).ending is SUCCEEDED
    assert (await hub.outcome(hub.run("test", "-d", "/"))).ending is SUCCEEDED
    assert worker.stop() == 0


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("script", "kind", "reason", "expected"),
    [
        ("echo '{\"a\": 1}' > $KILN_OUTPUT", "json", "Succeeded", b'{"a": 1}\n'),
        ("printf raw > $KILN_OUTPUT", "bytes", "Succeeded", b"raw"),
        ("echo '{nope' > $KILN_OUTPUT", "json", "InvalidResult", None),
        (": > $KILN_OUTPUT", "json", "InvalidResult", None),
        ("mkfifo $KILN_OUTPUT", "json", "InvalidResult", None),
        ("ln -s /dev/zero $KILN_OUTPUT", "json", "InvalidResult", None),
        ("head -c 65537 /dev/zero > $KILN_OUTPUT", "bytes", "ResultTooLarge", None),
        ("echo '{}' > $KILN_OUTPUT; exit 1", "json", "NonZeroExit", None),
    ],
)
async def test_result_is_read_by_its_type(
    hub: scripted_hub.ScriptedHub, script: str, kind: str, reason: str, expected: bytes | None
) -> None:
    outcome = await hub.outcome(hub.run("sh", "-c", script, output_type=kind))
    assert outcome.reason == reason
    assert (outcome.ending is SUCCEEDED) == (expected is not None)
    assert (outcome.result.data if outcome.result else None) == expected


@pytest.mark.usefixtures("worker")
async def test_stop_sends_sigterm_first_and_reports_the_request(
    hub: scripted_hub.ScriptedHub,
) -> None:
    ref = hub.run("sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await waiting.wait_until_async(lambda: hub.logs[ref] == b"up\n", what="it runs")
    hub.send(messages.Stop(ref, 5.0, "TimedOut"))
    outcome = await hub.outcome(ref)
    assert (outcome.ending, outcome.reason, outcome.exit_code) == (STOPPED, "TimedOut", 0)
    assert outcome.proof
    assert bytes(hub.logs[ref]).endswith(b"bye\n")


async def test_task_that_ignores_sigterm_is_killed_after_grace(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    ref = hub.run("sh", "-c", "trap '' TERM; echo up; sleep 60 & sleep 60; sleep 60")
    await waiting.wait_until_async(lambda: hub.logs[ref] == b"up\n", what="it runs")
    hub.send(messages.Stop(ref, 0.2, "Killed"))
    outcome = await hub.outcome(ref)  # in half a minute; by itself it takes one and more
    assert (outcome.ending, outcome.exit_code, outcome.proof) == (STOPPED, 137, True)
    assert worker.alive() == {worker.pid}


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if {clean}:
            os.execve("/bin/sleep", ["sleep", "60"], {{}})
        time.sleep(60)
    os._exit(0)
os.wait()
print("daemon is off", flush=True)
time.sleep({stay})
"""


@pytest.mark.parametrize("clean", [False, True], ids=["marked", "environment cleared"])
@pytest.mark.parametrize("stopped", [False, True], ids=["ends by itself", "stopped"])
async def test_daemon_that_left_the_session_is_killed_with_proof(
    hub: scripted_hub.ScriptedHub,
    worker: worker_process.WorkerProcess,
    *,
    clean: bool,
    stopped: bool,
) -> None:
    ref = hub.run(*python(DAEMON.format(clean=clean, stay=60 if stopped else 0)))
    await waiting.wait_until_async(lambda: hub.logs[ref], what="the daemon was started")
    if stopped:
        assert len(worker.descendants()) == 2
        hub.send(messages.Stop(ref, 0.0, "Killed"))
    outcome = await hub.outcome(ref)
    assert outcome.proof
    assert outcome.ending is (STOPPED if stopped else SUCCEEDED)
    assert worker.descendants() == set()


HOPPER = """
import os, time
end = time.monotonic() + 5
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    os.close(1)
    os.close(2)
    while os.fork() == 0 and time.monotonic() < end:
        pass
else:
    time.sleep(0.2)
os._exit(0)
"""


@pytest.mark.usefixtures("worker")
async def test_endlessly_forking_process_is_killed(
    hub: scripted_hub.ScriptedHub,
) -> None:
    ref = hub.run(*python(HOPPER))
    assert (await hub.outcome(ref)).proof
    session = int(hub.logs[ref])
    assert [pid for pid, stat in processes.read_all().items() if stat.session == session] == []


async def test_attempt_end_spares_the_daemons_of_another(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    first = hub.run(*python(DAEMON.format(clean=False, stay=60)))
    await waiting.wait_until_async(lambda: hub.logs[first], what="the daemon was started")
    family = worker.descendants()
    assert len(family) == 2
    second = hub.run(*python(DAEMON.format(clean=False, stay=0)))
    assert (await hub.outcome(second)).ending is SUCCEEDED
    assert worker.descendants() == family
    hub.send(messages.Stop(first, 0.0, "Killed"))
    assert (await hub.outcome(first)).proof
    assert worker.descendants() == set()


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


async def test_hundred_megabytes_of_output_take_no_memory(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.log_limit = 0
    before = resident_mib(worker.pid)
    assert before <= 25
    ref = hub.run("head", "-c", "100000000", "/dev/zero")
    outcome = await hub.outcome(ref, timeout_s=40)
    assert outcome.ending is SUCCEEDED
    assert hub.log_bytes == 100_000_000
    assert resident_mib(worker.pid) - before < 10


async def test_task_waits_while_its_output_is_not_acknowledged(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.keeps_logs = False
    ref = hub.run("sh", "-c", "head -c 3000000 /dev/zero; echo done > $KILN_OUTPUT")
    await waiting.wait_until_async(lambda: hub.log_bytes >= 1 << 20, what="a megabyte was sent")
    before = resident_mib(worker.pid)
    await asyncio.sleep(0.3)
    assert hub.log_bytes < 2 << 20
    assert hub.all_of(messages.Finished) == []
    assert resident_mib(worker.pid) - before < 2
    hub.keeps_logs = True
    hub.send(messages.LogKept(ref, hub.log_bytes))
    await hub.outcome(ref)
    assert len(hub.logs[ref]) == 3_000_000


async def test_output_appears_in_the_log_of_the_pod(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    await hub.outcome(hub.run("printf", "one\ntwo"))
    waiting.wait_until(lambda: worker.out.read_bytes() == b"one\ntwo\n", what="it is copied")


async def curl(hub: scripted_hub.ScriptedHub, *arguments: str) -> tuple[int, object]:
    """Run curl on the socket of a task; return status and document."""
    script = """exec curl -sS -w '\\n%{http_code}' --unix-socket "$KILN_SOCKET" "$@" """
    ref = hub.run("sh", "-c", script, "curl", *arguments)
    outcome = await hub.outcome(ref)
    text = bytes(hub.logs[ref]).decode()
    assert outcome.ending is SUCCEEDED, text
    body, _, status = text.rpartition("\n")
    return int(status), json.loads(body) if body else None


CHILD = ids.new_task_id()


def created_response(request: messages.Spawn | messages.GetTask) -> messages.Response:
    """Respond with 201 to children, and with where they are."""
    if isinstance(request, messages.Spawn):
        body = json.dumps({"id": ids.task_text(CHILD)}).encode()
        return messages.Response(request.serial, 201, body)
    state = {"id": ids.task_text(request.task), "state": "Success"}
    return messages.Response(request.serial, 200, json.dumps(state).encode())


@pytest.mark.usefixtures("worker")
@pytest.mark.curl
async def test_curl_spawns_a_child_in_the_cluster_of_its_parent(
    hub: scripted_hub.ScriptedHub,
) -> None:
    hub.respond = created_response
    body = '{"name": "kid", "spec": {"command": ["true"]}}'
    status, response = await curl(hub, "http://task/tasks", "--json", body)
    assert (status, response) == (201, {"id": ids.task_text(CHILD)})
    spawn = await hub.first(messages.Spawn)
    assert (spawn.name, spawn.key, spawn.ordinal) == ("kid", None, 1)
    assert spawn.spec.cluster_name == "counter"
    assert spawn.spec.command == ("true",)
    assert spawn.parent == hub.all_of(messages.Started)[0].ref


@pytest.mark.usefixtures("worker")
@pytest.mark.curl
async def test_curl_queries_a_task_and_reports_progress(hub: scripted_hub.ScriptedHub) -> None:
    hub.respond = created_response
    status, response = await curl(hub, f"http://task/tasks/{ids.task_text(CHILD)}?wait=5")
    assert (status, response) == (200, {"id": ids.task_text(CHILD), "state": "Success"})
    ask = await hub.first(messages.GetTask)
    assert ask.task == CHILD
    assert 4 < ask.wait_s <= 5
    status, response = await curl(hub, "http://task/progress", "--json", '{"fraction": 0.5}')
    assert (status, response) == (204, None)
    assert (await hub.first(messages.Progress)).fraction == 0.5


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("http://t/tasks", "--json", "{nope"), 400, "the body is refused"),
        (("http://t/tasks", "--json", '{"spec": {"comand": []}}'), 400, "unknown field `comand`"),
        (("http://t/tasks", "--json", '{"spec": {}, "x": 1}'), 400, "unknown field `x`"),
        (("http://t/tasks", "--json", "{}"), 400, "missing required field `spec`"),
        (("http://t/tasks", "--json", '{"spec": {}}'), 400, "spec.command is empty"),
        (("http://t/tasks", "--json", '{"spec": {"command": [1]}}'), 400, "`$.spec.command[0]`"),
        (("http://t/tasks",), 405, "use POST here"),
        (("http://t/tasks/nonsense",), 404, "'nonsense' is not the id of a task"),
        (("http://t/nowhere",), 404, "there is no /nowhere here"),
        (("http://t/tasks/" + ids.task_text(CHILD) + "?wait=soon",), 400, "wait=soon"),
        (("http://t/progress", "--json", '{"fraction": 2}'), 400, "`$.fraction`"),
    ],
)
@pytest.mark.curl
async def test_invalid_socket_requests_are_refused(
    hub: scripted_hub.ScriptedHub, arguments: tuple[str, ...], status: int, message: str
) -> None:
    found, response = await curl(hub, *arguments)
    assert found == status
    assert isinstance(response, dict)
    assert message in response["message"]


@pytest.mark.usefixtures("worker")
@pytest.mark.curl
async def test_body_that_is_too_large_is_refused(hub: scripted_hub.ScriptedHub) -> None:
    script = (
        'head -c 300000 /dev/zero | tr "\\0" a > $KILN_DIR/body;'
        'for way in "Expect:" "Transfer-Encoding: chunked"; do '
        'curl -s -o /dev/null -w "%{http_code} " --unix-socket "$KILN_SOCKET" http://t/tasks '
        '-H "$way" --data-binary @$KILN_DIR/body; done; true'
    )
    ref = hub.run("sh", "-c", script)
    await hub.outcome(ref)
    assert bytes(hub.logs[ref]).split() == [b"413", b"413"]


@pytest.mark.usefixtures("worker")
async def test_lost_link_resumes_with_unacknowledged_messages(
    hub: scripted_hub.ScriptedHub,
) -> None:
    hub.acknowledges = False
    over = hub.run("sh", "-c", "echo over")
    going = hub.run("sh", "-c", "echo one; until [ -e go ]; do sleep 0.02; done; echo two")
    await hub.outcome(over)
    await waiting.wait_until_async(lambda: hub.logs[going] == b"one\n", what="the other one runs")
    await hub.stop()
    hub.seen.clear()
    hub.acknowledges = True
    await hub.start()
    hello = await hub.first(messages.Hello)
    assert {r.ref for r in hello.running} == {over, going}
    await hub.first(messages.Started, over)
    assert (await hub.outcome(over)).ending is SUCCEEDED
    serials = [m.serial for m in hub.seen if isinstance(m, messages.Started | messages.Finished)]
    assert serials == [1, 2, 3] or serials == sorted(serials)
    (Path(hub.path.parent) / "go").touch()
    hub.send(messages.Stop(going, 0.0, "Killed"))
    assert (await hub.outcome(going)).ending is STOPPED
    (Path(hub.path.parent) / "go").unlink()


async def test_ends_during_an_absence_are_reported_with_output(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    flag = worker.directory / "go"
    ref = hub.run("sh", "-c", f"echo one; until [ -e {flag} ]; do sleep 0.02; done; echo two")
    await waiting.wait_until_async(lambda: hub.logs[ref] == b"one\n", what="it runs")
    await hub.stop()
    flag.touch()
    await waiting.wait_until_async(lambda: worker.alive() == {worker.pid}, what="it has ended")
    await hub.start()
    outcome = await hub.outcome(ref)
    assert (outcome.ending, bytes(hub.logs[ref])) == (SUCCEEDED, b"one\ntwo\n")


@pytest.mark.parametrize("verdict", [scripted_hub.UNKNOWN, scripted_hub.STOP])
async def test_attempt_unknown_to_the_dispatcher_is_ended_silently(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess, verdict: messages.Verdict
) -> None:
    hub.acknowledges = False
    over, going = hub.run("true"), hub.run("sleep", "60")
    await hub.outcome(over)
    await hub.first(messages.Started, going)
    hub.decide = lambda _: verdict
    hub.seen.clear()
    hub.drop()
    await hub.first(messages.Hello)
    await waiting.wait_until_async(lambda: worker.alive() == {worker.pid}, what="it is killed")
    assert (await hub.outcome(hub.run("true"))).ending is SUCCEEDED
    assert {m.ref for m in hub.all_of(messages.Finished)}.isdisjoint({over, going})
    hub.seen.clear()
    hub.decide = lambda _: scripted_hub.KEEP
    hub.drop()
    assert {r.ref for r in (await hub.first(messages.Hello)).running}.isdisjoint({over, going})


@pytest.mark.usefixtures("worker")
@pytest.mark.curl
async def test_request_survives_the_loss_of_the_link(hub: scripted_hub.ScriptedHub) -> None:
    asked = asyncio.ensure_future(
        curl(hub, "http://task/tasks", "--json", '{"key": "left", "spec": {"command": ["true"]}}')
    )
    first = await hub.first(messages.Spawn)
    hub.respond = created_response
    hub.drop()
    assert await asked == (201, {"id": ids.task_text(CHILD)})
    again = hub.all_of(messages.Spawn)[-1]
    assert again == first
    assert again.key == "left"


@pytest.mark.usefixtures("worker")
async def test_garbage_closes_only_the_link(hub: scripted_hub.ScriptedHub) -> None:
    ref = hub.run("sh", "-c", "sleep 0.3")
    await hub.first(messages.Started, ref)
    hub.send_raw(b"\0\0\0\3\xc1\xc1\xc1")
    await waiting.wait_until_async(lambda: len(hub.all_of(messages.Hello)) == 2, what="it is back")
    assert (await hub.outcome(ref)).ending is SUCCEEDED


async def test_tasks_are_killed_before_the_lease_ends(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.lease_s, hub.renew_s = 3.0, 0.3
    hub.drop()
    await waiting.wait_until_async(lambda: len(hub.all_of(messages.Renew)) > 1, what="it renews")
    loop = asyncio.get_running_loop()
    for _ in range(3):  # the best counts: a busy machine may pause the worker
        ref = hub.run("sleep", "60")
        await hub.first(messages.Started, ref)
        await hub.stop()
        cut = loop.time()
        await waiting.wait_until_async(
            lambda: worker.alive() == {worker.pid}, what="the task is killed"
        )
        took_s = loop.time() - cut
        await hub.start()
        outcome = await hub.outcome(ref)
        assert (outcome.ending, outcome.reason, outcome.proof) == (LOST, "WorkerLost", True)
        if took_s < hub.lease_s:
            break
    assert 1 < took_s < hub.lease_s


async def test_dispatcher_that_does_not_renew_loses_the_worker(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.lease_s, hub.renew_s = 3.0, 0.3
    hub.drop()
    await waiting.wait_until_async(lambda: len(hub.all_of(messages.Renew)) > 1, what="it renews")
    ref = hub.run("sleep", "60")
    await hub.first(messages.Started, ref)
    hub.renews = False
    assert (await hub.outcome(ref)).reason == "WorkerLost"
    assert worker.alive() == {worker.pid}


async def test_sigterm_stops_tasks_reports_and_ends_with_zero(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    polite = hub.run("sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await waiting.wait_until_async(lambda: hub.logs[polite] == b"up\n", what="it runs")
    code = await asyncio.to_thread(worker.stop)
    assert code == 0
    outcome = await hub.outcome(polite)
    assert (outcome.ending, outcome.reason, outcome.proof) == (LOST, "WorkerStopping", True)
    assert worker.alive() == set()


async def test_second_sigterm_gives_no_grace(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    ref = hub.run("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await waiting.wait_until_async(lambda: hub.logs[ref] == b"up\n", what="it runs")
    worker.signal(signal.SIGTERM)
    await waiting.wait_until_async(
        lambda: b"worker stops" in worker.log.read_bytes(), what="it has read the signal"
    )
    late = hub.run("true")
    assert (await hub.outcome(late)).reason == "WorkerStopping"
    assert await asyncio.to_thread(worker.stop, timeout_s=6) == 0  # the grace would be 8
    assert (await hub.outcome(ref)).exit_code == 137


async def test_refused_worker_exits(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.greeting = messages.Refused("BadToken", "no such token", retry=False)
    hub.drop()
    assert worker.process is not None
    assert await asyncio.to_thread(worker.process.wait, 10) == 3
    assert "no such token" in worker.log.read_text()


async def test_temporarily_refused_worker_retries(
    hub: scripted_hub.ScriptedHub, worker: worker_process.WorkerProcess
) -> None:
    hub.greeting = messages.Refused("NotYet", "the Secret is not there yet", retry=True)
    hub.seen.clear()
    hub.drop()
    await waiting.wait_until_async(
        lambda: len(hub.all_of(messages.Hello)) > 2, what="it tries again"
    )
    hub.greeting = None
    hub.seen.clear()
    await hub.first(messages.Hello)
    assert (await hub.outcome(hub.run("true"))).ending is SUCCEEDED
    assert worker.stop() == 0


async def test_service_account_becomes_a_kubeconfig(
    hub: scripted_hub.ScriptedHub, tmp_path: Path
) -> None:
    mounts = tmp_path / "root"
    account = mounts / "var/run/secrets/kubernetes.io/serviceaccount"
    account.mkdir(parents=True)
    (account / "token").write_text("secret")
    channel_token = mounts / "var/run/secrets/kilnwork.dev/channel"
    channel_token.mkdir(parents=True)
    (channel_token / "token").write_text("from the mount")
    worker = worker_process.WorkerProcess(
        tmp_path,
        channel=hub.path,
        CONTAINER_SANDBOX_MOUNT_POINT=str(mounts),
        KILN_TOKEN_FILE="/var/run/secrets/kilnwork.dev/channel/token",
        KUBERNETES_SERVICE_HOST="127.0.0.1",
        KUBERNETES_SERVICE_PORT="7443",
    )
    worker.start()
    try:
        assert (await hub.first(messages.Hello)).credential == "from the mount"
        script = 'stat -c %a "$KUBECONFIG"; cat "$KUBECONFIG"; echo; echo $KUBERNETES_SERVICE_PORT'
        ref = hub.run("sh", "-c", script)
        assert (await hub.outcome(ref)).ending is SUCCEEDED
        mode, document, port = bytes(hub.logs[ref]).decode().splitlines()
        config = json.loads(document)
        assert (mode, port) == ("600", "7443")
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:7443"
        assert config["clusters"][0]["cluster"]["certificate-authority"] == str(account / "ca.crt")
        assert config["users"][0]["user"] == {"tokenFile": str(account / "token")}
        assert config["contexts"][0]["context"]["namespace"] == "default"
    finally:
        worker.destroy()
