"""`kiln run-job`, `jobs`, `schedule`, `backfill`, and other commands with `job/NAME`."""

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.cli import exits
from support import in_process_cli, terminal, up_server, waiting

PATIENCE_S = 30.0
OK = exits.Exit.OK

OPTIONS = [
    {"type": "String", "name": "who", "label": "Whom to greet", "required": True},
    {"type": "Int", "name": "times", "int": {"default": 1, "minimum": 1}},
    {"type": "Bool", "name": "loud"},
]


def template(*argv: str, **more: Any) -> dict[str, Any]:
    return {"taskTemplate": {"command": list(argv)}, **more}


def config(name: str, made: dict[str, Any], policy: str = "Allow", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "JobConfig",
        "metadata": {"name": name},
        "spec": {"template": {"spec": made}, "concurrency": {"policy": policy}, **spec},
    }


SLEEP = template("sleep", "300", timeouts={"killGraceSeconds": 1})
PARTS = template(
    "sh", "-c", 'echo "out ${task.index_key}"; [ ${task.index_key} != bad ]',
    parallelism={"withKeys": ["a", "bad", "c"], "completionStrategy": {"minSuccessful": 3}},
)  # fmt: skip
CONFIGS = [
    config(
        "greet",
        template("sh", "-c", 'echo "\\"${option.who} ${option.times}\\"" > $KILN_OUTPUT'),
        option={"options": OPTIONS},
    ),
    config("parts", PARTS),
    config("sleep", SLEEP),
    config(
        "daily",
        template("sh", "-c", 'echo "\\"${job.scheduled_time} ${job.type}\\"" > $KILN_OUTPUT'),
        schedule={"cron": {"expression": "0 2 * * *", "timezone": "Europe/Zurich"}},
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("up"), slots=4) as made:
        made.kiln("apply", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in CONFIGS))
        yield made


@pytest.fixture
def kiln(
    server: up_server.UpServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> in_process_cli.Kiln:
    return in_process_cli.kiln_of(server.data, monkeypatch, capfd)


def wait_for(server: up_server.UpServer, name: str, phase: str) -> None:
    def reached() -> bool:
        return bool(server.get("jobs", name).get("status", {}).get("phase") == phase)

    waiting.wait_until(reached, what=f"{name} is {phase}", timeout_s=PATIENCE_S)


@pytest.fixture(scope="module")
def failed(server: up_server.UpServer) -> str:
    """Return a Job of three indexes, of which `bad` has failed."""
    server.kiln("run-job", "parts", "--name", "failed")
    wait_for(server, "failed", "Failed")
    return "failed"


# Running JobConfigs


def test_values_of_options_reach_the_job(kiln: in_process_cli.Kiln) -> None:
    done = kiln("run-job", "greet", "--name", "one", "--option", "who=Ada", "--option", "times=3")
    assert (done.code, done.out) == (OK, "job.kilnwork.dev/one created\n")
    assert kiln("wait", "job/one", "--for", "Succeeded").code == OK
    assert kiln("result", "job/one").out == '"Ada 3"\n'


def test_option_values_are_read_from_a_file(kiln: in_process_cli.Kiln, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("who: Bo\ntimes: 2\n")
    asked = (
        "run-job",
        "greet",
        "-O",
        f"@{values}",
        "--option",
        "times=5",
        "--dry-run",
        "-o",
        "json",
    )
    made = json.loads(kiln(*asked).out)
    assert json.loads(made["spec"]["optionValues"]) == {"who": "Bo", "times": 5, "loud": False}
    assert made["metadata"]["generateName"] == "greet-"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--option", "whom=Ada"), "option.whom is no option; did you mean who?"),
        (("--option", "who=Ada", "--option", "times=x"), "option.times must be a whole number"),
        (("-O", '{"who": "Ada", "times": 0}'), "option.times"),
        (("-O", "[1]"), "option must be an object"),
        ((), "option.who"),
        (("--option", "who"), "write NAME=VALUE"),
    ],
)
def test_invalid_option_value_is_refused_before_creation(
    kiln: in_process_cli.Kiln, given: tuple[str, ...], text: str
) -> None:
    before = kiln("jobs", "--config", "greet", "-o", "name").out
    done = kiln("run-job", "greet", *given)
    assert done.code == exits.Exit.USAGE
    assert text in done.err
    assert kiln("jobs", "--config", "greet", "-o", "name").out == before


def test_run_prompts_for_values_on_a_terminal(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    argv = [up_server.KILN, "run-job", "greet", "--name", "asked", "--option", "loud=yes"]
    asked = terminal.Terminal(argv, server.environment)
    asked.respond("Whom to greet (who) [required]: ", "")
    asked.respond("Whom to greet (who) [required]: ", "Ada")
    asked.respond("times, a whole number [1]: ", "many")
    asked.respond("times, a whole number [1]: ", "")
    assert asked.end() == OK
    assert "option.who is needed" in asked.shown
    assert 'option.times must be a whole number, not "many"' in asked.shown
    assert json.loads(server.get("jobs", "asked")["spec"]["optionValues"]) == {
        "who": "Ada", "times": 1, "loud": True,
    }  # fmt: skip


def test_progress_bar_is_shown_on_a_terminal(server: up_server.UpServer) -> None:
    slow = template("sh", "-c", "sleep 1.2", parallelism={"withCount": 8})
    server.kiln("apply", "-f", "-", stdin=json.dumps(config("slow", slow)))
    shown = terminal.Terminal([up_server.KILN, "run-job", "slow", "--watch"], server.environment)
    assert shown.end() == OK
    assert "of 8 indexes" in shown.shown
    assert "8 of 8 indexes have succeeded" in shown.shown


def test_job_with_a_later_start_waits_in_the_queue(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    assert (
        kiln("run-job", "sleep", "--name", "later", "--after", "1h", "--priority", "7").code == OK
    )
    wait_for(server, "later", "Queued")
    made = server.get("jobs", "later")["spec"]
    assert (made["startPolicy"]["concurrencyPolicy"], made["priority"]) == ("Enqueue", 7)
    assert "later " in kiln("jobs", "--queued").out
    assert "NotYetDue" in kiln("why", "job/later").out
    assert kiln("cancel", "job/later", "--wait").code == OK
    assert "later " in kiln("jobs", "--state", "Killed").out


def test_watch_ends_as_the_job_ends(kiln: in_process_cli.Kiln) -> None:
    good = kiln("run-job", "greet", "--option", "who=Ada", "--watch")
    assert (good.code, good.out) == (OK, "")
    assert "is Succeeded" in good.err
    bad = kiln("run-job", "parts", "--name", "watched", "--watch")
    assert bad.code == exits.Exit.TASK_FAILED
    assert bad.err.count("index 1 (bad) failed: ") == 1
    assert "kiln retry job/watched" in bad.err
    again = kiln("jobs", "watched", "--watch")
    assert (again.code, again.err.count("index 1 (bad) failed: ")) == (exits.Exit.TASK_FAILED, 1)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("run-job gr", ["greet"]),
        ("run-job greet --option l", ["loud=", "loud=yes", "loud=no"]),
        ("backfill daily --option w", []),
        ("why jobconfig/da", ["jobconfig/daily"]),
    ],
)
def test_names_of_configs_and_options_are_completed(
    kiln: in_process_cli.Kiln,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    line: str,
    offered: list[str],
) -> None:
    monkeypatch.setenv("_KILN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"kiln {line}")
    monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
    with pytest.raises(SystemExit):
        kiln()
    found = [word.removeprefix("plain,") for word in capfd.readouterr().out.split()]
    assert found == offered


def test_missing_config_is_named(kiln: in_process_cli.Kiln) -> None:
    for command in (("run-job", "missing"), ("disable", "missing"), ("schedule", "missing")):
        done = kiln(*command)
        assert (done.code, "there is no JobConfig" in done.err) == (exits.Exit.NOT_FOUND, True)


# Looking


def test_jobs_and_their_indexes_are_listed(kiln: in_process_cli.Kiln, failed: str) -> None:
    header, *rows = kiln("jobs", "--config", "parts").out.splitlines()
    [row] = [line for line in rows if line.split()[0] == failed]  # other tests make some too
    assert header.split() == ["NAME", "CONFIG", "PHASE", "INDEXES", "AGE", "TOOK"]
    assert row.split()[:3] == [failed, "parts", "Failed"]
    assert "2/3 (1 failed)" in row
    assert failed not in kiln("jobs", "--active").out
    assert failed not in kiln("jobs", "--scheduled").out
    assert "IndexesFailed" in kiln("jobs", "-o", "wide", "--finished", "--adhoc").out
    one = kiln("jobs", failed).out
    assert "Job failed is Failed" in one
    assert f"kiln retry job/{failed}" in one
    table = kiln("jobs", failed, "--indexes").out.splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["0", "a", "Succeeded"], ["1", "bad", "Failed"], ["2", "c", "Succeeded"],
    ]  # fmt: skip
    assert kiln("jobs", failed, "--indexes", "--state", "failed", "-o", "name").out == "failed-1\n"
    assert kiln("get", "job", failed, "--indexes", "--no-headers").out.splitlines() == table[1:]
    assert failed in kiln("get", "jobs", "--state", "failed").out
    assert kiln("get", "tasks", "--state", "Failed").code == exits.Exit.USAGE
    assert kiln("jobs", "--state", "Broken").code == exits.Exit.USAGE
    page = kiln("jobs", failed, "--indexes", "--limit", "2")
    assert (len(page.out.splitlines()), "the first 2" in page.err) == (3, True)


def test_why_of_jobs_and_configs(kiln: in_process_cli.Kiln, failed: str) -> None:
    why = kiln("why", f"job/{failed}").out
    assert "Job failed is Failed (IndexesFailed)" in why
    assert "Failed: 1." in why
    assert kiln("why", failed).out == why, "no task is called so"
    assert "it has no schedule" in kiln("why", "jobconfig/parts").out
    assert "it runs next at" in kiln("why", "jobconfig/daily").out


def test_logs_of_indexes(kiln: in_process_cli.Kiln, failed: str) -> None:
    everything = kiln("logs", f"job/{failed}").out
    assert everything.splitlines()[0] == "[bad] out bad", "what failed comes first"
    assert sorted(everything.splitlines()) == ["[a] out a", "[bad] out bad", "[c] out c"]
    assert sorted(kiln("logs", "-f", f"job/{failed}").out.splitlines()) == [
        "[a] out a", "[bad] out bad", "[c] out c",
    ]  # fmt: skip
    assert kiln("logs", f"job/{failed}", "--index", "2").out == "out c\n"
    assert kiln("logs", f"job/{failed}", "--index", "bad", "--attempt", "1").out == "out bad\n"
    missing = kiln("logs", f"job/{failed}", "--index", "9")
    assert (missing.code, "no index '9'" in missing.err) == (exits.Exit.NOT_FOUND, True)


def test_logs_of_a_job_of_one_index_are_waited_for(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    made = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "after"},
        "spec": {
            "template": template("echo", "hello"),
            "dependsOn": [{"name": "first", "outcome": "Finished"}],
        },
    }
    server.kiln("apply", "-f", "-", stdin=json.dumps(made))
    wait_for(server, "after", "Queued")
    early = kiln("logs", "job/after")
    assert (early.code, "WaitingForDependency" in early.err) == (exits.Exit.FAILED, True)
    follower = subprocess.Popen(
        [up_server.KILN, "logs", "-f", "job/after"],
        env=server.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert kiln("run-job", "parts", "--name", "first").code == OK
    out, _ = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, out) == (OK, b"hello\n")
    assert kiln("logs", "after").out == "hello\n", "no task is called so"
    assert "kiln result job/after" in kiln("result", "after").err


def test_task_of_that_name_is_not_the_index(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    stranger = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": "mine-0"},
        "spec": {"command": ["sh", "-c", "echo other; echo 2 > $KILN_OUTPUT"]},
    }
    printing = template("sh", "-c", "echo mine; echo 1 > $KILN_OUTPUT")
    job = {**stranger, "kind": "Job", "metadata": {"name": "mine"}, "spec": {"template": printing}}
    server.kiln("apply", "-f", "-", stdin=json.dumps(stranger))
    assert kiln("wait", "mine-0").code == OK
    server.kiln("apply", "-f", "-", stdin=json.dumps(job))
    wait_for(server, "mine", "Succeeded")
    assert kiln("logs", "job/mine").out == "mine\n"
    assert kiln("result", "job/mine").out == "1\n"


def test_result_of_a_job_without_one_is_an_error(kiln: in_process_cli.Kiln, failed: str) -> None:
    done = kiln("result", f"job/{failed}")
    assert (done.code, "is Failed" in done.err) == (exits.Exit.TASK_FAILED, True)


# Changing


def test_retry_runs_failed_indexes(kiln: in_process_cli.Kiln, server: up_server.UpServer) -> None:
    assert kiln("run-job", "parts", "--name", "again", "--watch").code == exits.Exit.TASK_FAILED
    done = kiln("retry", "job/again", "--failed", "--wait")
    assert "starts again as run 2" in done.out
    assert done.code == exits.Exit.TASK_FAILED
    runs = {item["label"]: item["run"] for item in _indexes(kiln, "again")}
    assert runs == {"a": 1, "bad": 2, "c": 1}
    assert server.get("jobs", "again")["spec"]["run"] == 2


def test_retry_of_a_job_that_succeeded_runs_its_failed_indexes(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    tolerant = json.loads(json.dumps(PARTS))
    tolerant["parallelism"]["completionStrategy"] = {"maxFailed": 1}
    server.kiln("apply", "-f", "-", stdin=json.dumps(config("tolerant", tolerant)))
    assert kiln("run-job", "tolerant", "--name", "enough", "--watch").code == OK
    assert kiln("retry", "job/enough", "--wait").code == OK
    runs = {item["label"]: item["run"] for item in _indexes(kiln, "enough")}
    assert runs == {"a": 1, "bad": 2, "c": 1}
    assert kiln("run-job", "greet", "--option", "who=Al", "--name", "all", "--watch").code == OK
    refused = kiln("retry", "job/all")
    assert (refused.code, "no index is left to run" in refused.err) == (exits.Exit.FAILED, True)


def _indexes(kiln: in_process_cli.Kiln, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kiln("jobs", name, "--indexes", "-o", "json").out)[
        "items"
    ]
    return found


def test_job_is_suspended_and_cancelled(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    assert kiln("run-job", "sleep", "--name", "held").code == OK
    wait_for(server, "held", "Running")
    assert kiln("pause", "job/held").out == "Job held is suspended\n"
    assert server.get("jobs", "held")["spec"]["suspend"] is True
    assert kiln("resume", "job/held").out == "Job held is resumed\n"
    refused = kiln("retry", "job/held")
    assert (refused.code, "not finished" in refused.err) == (exits.Exit.FAILED, True)
    later = kiln("cancel", "job/held", "--at", "2099-01-01T00:00Z")
    assert "will be stopped at 2099-01-01T00:00:00Z" in later.out
    assert kiln("cancel", "job/held", "--wait").out == "Job held is being stopped\n"
    assert server.get("jobs", "held")["status"]["phase"] == "Killed"
    assert kiln("cancel", "job/held").out == "Job held is already Killed\n"
    assert kiln("delete", "job", "held").code == OK
    assert kiln("jobs", "held").code == exits.Exit.NOT_FOUND


def test_job_name_without_kind_is_accepted_where_unambiguous(
    kiln: in_process_cli.Kiln, failed: str
) -> None:
    assert f"job/{failed} starts again as run 2" in kiln("retry", failed, "--wait").out
    assert f"Job {failed} is already Failed" in kiln("suspend", failed).err
    assert kiln("wait", failed, "--for", "Failed").code == OK
    wrong = kiln("wait", f"job/{failed}", "--for", "Success")
    assert (wrong.code, "Succeeded" in wrong.err) == (exits.Exit.USAGE, True)
    never = kiln("wait", f"job/{failed}", "--for", "Succeeded")
    assert (never.code, "will not be Succeeded" in never.err) == (exits.Exit.TASK_FAILED, True)


def test_name_shared_by_file_job_and_job_is_ambiguous(
    kiln: in_process_cli.Kiln, tmp_path: Path, failed: str
) -> None:
    records = tmp_path / "two.jsonl"
    records.write_text('{"expression": "1 + 1"}\n')
    assert kiln("upload", str(records), "--mapper", "calculator", "--name", failed).code == OK
    for command in ("why", "logs", "cancel"):
        done = kiln(command, failed)
        assert done.code == exits.Exit.USAGE
        assert f"write file/{failed} or job/{failed}" in done.err
    assert kiln("why", f"job/{failed}").code == OK
    assert kiln("why", f"file/{failed}").code == OK


# Schedules


def test_schedules_are_shown_and_switched(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    shown = kiln("schedule", "daily", "--next", "2").out.splitlines()
    assert shown[0] == "daily: 0 2 * * * in Europe/Zurich"
    assert len([line for line in shown if " 02:00:00 +0" in line]) == 2
    document = json.loads(kiln("schedule", "daily", "-o", "json").out)["items"][0]
    assert len(document["nextRuns"]) == 5
    assert kiln("disable", "daily").out == "daily is disabled\n"
    assert server.get("jobconfigs", "daily")["spec"]["schedule"]["disabled"] is True
    assert "disabled" in kiln("schedule").out
    assert kiln("disable", "daily").out == "daily is already disabled\n"
    assert kiln("enable", "daily").out == "daily is enabled\n"
    refused = kiln("enable", "parts")
    assert (refused.code, "has no schedule" in refused.err) == (exits.Exit.FAILED, True)


def test_schedule_expression_is_checked_without_a_server(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kiln = in_process_cli.kiln_of(tmp_path, monkeypatch, capfd)
    done = kiln("schedule", "--cron", "30 4 1 1 *", "--timezone", "UTC+8", "--next", "1")
    assert (done.code, " 01-01 04:30:00 +0800" in done.out.replace("-01-01", " 01-01")) == (
        OK,
        True,
    )
    wrong = kiln("schedule", "--cron", "61 * * * *")
    assert (wrong.code, "--cron: " in wrong.err) == (exits.Exit.USAGE, True)
    nowhere = kiln("schedule", "--cron", "* * * * *", "--timezone", "Mars")
    assert (nowhere.code, "--timezone: " in nowhere.err) == (exits.Exit.USAGE, True)


def test_backfill_creates_each_tick_once(
    kiln: in_process_cli.Kiln, server: up_server.UpServer
) -> None:
    asked = ("backfill", "daily", "--from", "2026-01-01", "--to", "2026-01-03")
    dry = kiln(*asked, "--dry-run")
    assert dry.out.count("would be created") == 3
    assert kiln("jobs", "--config", "daily", "-o", "name").out == ""
    tick = int(dt.datetime(2026, 1, 2, 1, tzinfo=dt.UTC).timestamp())
    first = kiln("backfill", "daily", "--from", "2026-01-02T02:00", "--to", "2026-01-02T02:00")
    assert f"daily-{tick}   Fri 2026-01-02 02:00:00 +0100   created" in first.out
    wait_for(server, f"daily-{tick}", "Succeeded")
    assert kiln("result", f"job/daily-{tick}").out == '"2026-01-02T01:00:00Z Adhoc"\n'
    rest = kiln(*asked)
    assert (rest.out.count("   created"), rest.out.count("   exists")) == (2, 1)
    for day in (1, 3):
        wait_for(server, f"daily-{tick + (day - 2) * 86_400}", "Succeeded")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (("--from", "2026-01-01", "--to", "2099-01-01"), "is in the future"),
        (("--from", "2026-01-02", "--to", "2026-01-01"), "is before --from"),
        (("--from", "2026-01-01", "--to", "2026-01-09", "--limit", "3"), "more than 3 ticks"),
        (("--from", "2025-01-01", "--to", "2025-01-31"), "--concurrency-policy Allow"),
        (("--from", "2026-01-01T03:00", "--to", "2026-01-01T04:00"), "has no tick"),
        (("--from", "yesterday", "--to", "2026-01-01"), "is not a time"),
    ],
)
def test_backfill_refuses_ambiguous_ranges(
    kiln: in_process_cli.Kiln, asked: tuple[str, ...], text: str
) -> None:
    done = kiln("backfill", "daily", *asked)
    assert (done.code != OK, text in done.err) == (True, True), done
