"""`kiln deploy` under `kiln up`, and its jobs as Python submits and follows them."""

import datetime
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support
from support import waiting

MODULE = "deployed_jobs"
PATIENCE_S = 30.0

JOBS = '''\
"""Jobs of a test."""

import datetime
import time
from pathlib import Path
from typing import Literal

import kilnwork as kiln


@kiln.job(schedule="0 0 1 1 *", timezone="Europe/Zurich", concurrency="Forbid")
def report(
    city: Literal["oslo", "lima"] = "oslo",
    day: datetime.date | None = None,
    tags: list[Literal["a", "b"]] = ["b"],
) -> list[str]:
    """Make the report."""
    return [city, repr(day), *tags]


def total(results: list[int]) -> int:
    return sum(results)


@kiln.job(parallel={"city": ["oslo", "lima"], "floor": ["1", "2"]}, finalizer=total)
def survey(index: int, matrix: dict[str, str], base: int = 10) -> int:
    return base * index + len(matrix["city"])


@kiln.job(parallel=501)
def wide(index: int) -> int:
    return index


@kiln.job
async def large(size: int) -> str:
    return "x" * size


@kiln.job
def odd() -> set[int]:
    return {1, 2}


@kiln.job(retries=1, retry_delay=0)
def fails(gate: str, log: str) -> str:
    with open(log, "a") as file:
        file.write("x")
    if not Path(gate).exists():
        raise ValueError("no gate")
    return "through"


@kiln.job
def sleeps(log: str) -> None:
    try:
        Path(log).write_text("began")
        time.sleep(300)
    except kiln.Cancelled:
        Path(log).write_text("cancelled")
        raise
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("deploy"), slots=3) as made:
        (made.workdir / f"{MODULE}.py").write_text(JOBS)
        made.kiln("deploy", MODULE)
        yield made


@pytest.fixture
def jobs(server: up_support.UpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the module in a connected program."""
    monkeypatch.syspath_prepend(str(server.workdir))
    with kiln.connect(server.data):
        yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def version(server: up_support.UpServer, name: str) -> str:
    return str(server.get("jobconfigs", name)["metadata"]["resourceVersion"])


# Deploying


def test_second_deploy_changes_nothing(server: up_support.UpServer) -> None:
    before = version(server, "report")
    done = server.kiln("deploy", MODULE).stdout.splitlines()
    assert done == [
        f"jobconfig.kilnwork.dev/{name} unchanged"
        for name in ("fails", "large", "odd", "report", "sleeps", "survey", "wide")
    ]
    assert version(server, "report") == before


def test_changes_are_shown_and_made(server: up_support.UpServer) -> None:
    file = server.workdir / "changing.py"
    text = JOBS.replace("def ", "def c_").replace("=total", "=c_total")
    file.write_text(text)
    server.kiln("deploy", "changing")

    file.write_text(
        text.replace('"0 0 1 1 *"', '"0 0 2 1 *"').replace('"lima"] = "oslo"', '"rome"] = "rome"')
    )
    dry = server.kiln("deploy", "changing", "--dry-run").stdout
    lines = [
        '  spec.option.options[city].select.default: "oslo" -> "rome"',
        '  spec.option.options[city].select.values[1]: "lima" -> "rome"',
        '  spec.schedule.cron.expression: "0 0 1 1 *" -> "0 0 2 1 *"',
    ]
    start = "jobconfig.kilnwork.dev/c-report configured"
    assert [line for line in dry.splitlines() if "unchanged" not in line] == [
        f"{start} (dry run)",
        *lines,
    ]
    cron = server.get("jobconfigs", "c-report")["spec"]["schedule"]["cron"]
    assert cron["expression"] == "0 0 1 1 *"
    done = server.kiln("deploy", "changing", "--label", "team=data").stdout.splitlines()
    at = done.index(start)
    assert done[at + 1 : at + 5] == ['  metadata.labels.team: added "data"', *lines]
    found = server.get("jobconfigs", "c-report")
    assert found["spec"]["schedule"]["cron"]["expression"] == "0 0 2 1 *"
    assert found["metadata"]["labels"] == {
        "kilnwork.dev/deployed-from": "changing",
        "team": "data",
    }


def test_file_is_uploaded_and_a_changed_one_runs(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    file = tmp_path / "sent_along.py"
    text = "import kilnwork as kiln\n\n\n@kiln.job\ndef number() -> int:\n    return {}\n"
    for number in (41, 42):
        file.write_text(text.format(number))
        server.kiln("deploy", str(file))
        assert "unchanged" in server.kiln("deploy", str(file)).stdout
        with kiln.connect(server.data):
            assert kiln.job("number").submit().result(PATIENCE_S) == number


def test_prune_deletes_undeclared_configs(server: up_support.UpServer) -> None:
    one = "import kilnwork as kiln\n\n\n@kiln.job\ndef {}() -> None: ...\n"
    file = server.workdir / "pruned.py"
    file.write_text(one.format("stays") + one.format("goes"))
    server.kiln("deploy", "pruned")
    file.write_text(one.format("stays"))
    done = server.kiln("deploy", "pruned")
    assert "goes was deployed from pruned" in done.stderr
    assert server.get("jobconfigs", "goes")
    done = server.kiln("deploy", "pruned", "--prune")
    assert done.stdout.splitlines() == [
        "jobconfig.kilnwork.dev/stays unchanged",
        "jobconfig.kilnwork.dev/goes pruned",
    ]
    left = {one["metadata"]["name"] for one in server.get("jobconfigs")["items"]}
    assert left & {"goes", "report"} == {"report"}

    file.write_text("")
    done = server.kiln("deploy", "pruned", check=False)
    assert done.returncode == 2
    assert "declares no jobs" in done.stderr
    done = server.kiln("deploy", "pruned", "--prune")
    assert done.stdout == "jobconfig.kilnwork.dev/stays pruned\n"


def test_fields_of_other_clients_are_kept_unless_forced(server: up_support.UpServer) -> None:
    file = server.workdir / "shared.py"
    head = "import kilnwork as kiln\n\n\n"
    file.write_text(head + '@kiln.job(schedule="0 0 1 1 *")\ndef shared() -> None: ...\n')
    server.kiln("deploy", "shared")
    change = '{"spec": {"schedule": {"disabled": true, "cron": {"expression": "0 0 9 9 *"}}}}'
    server.kubectl("patch", "kjc", "shared", "--type", "merge", "-p", change)
    done = server.kiln("deploy", "shared", check=False)
    assert done.returncode == 1
    assert "--force takes the fields over" in done.stderr
    server.kiln("deploy", "shared", "--force")
    schedule = server.get("jobconfigs", "shared")["spec"]["schedule"]
    assert schedule["disabled"] is True
    assert schedule["cron"]["expression"] == "0 0 1 1 *"


def test_fields_omitted_by_the_module_are_removed(server: up_support.UpServer) -> None:
    file = server.workdir / "lessened.py"
    text = "import kilnwork as kiln\n\n\n@kiln.job({})\ndef lessened() -> None: ...\n"
    file.write_text(text.format("schedule='@daily', missed_runs='All', retries=3, parallel=2"))
    server.kiln("deploy", "lessened")
    file.write_text(text.format(""))
    server.kiln("deploy", "lessened")
    spec = server.get("jobconfigs", "lessened")["spec"]
    assert "schedule" not in spec
    assert spec["template"]["spec"].keys() == {"taskTemplate", "timeouts"}


def test_manifests_need_no_server(server: up_support.UpServer) -> None:
    text = server.kiln("deploy", MODULE, "--dry-run", "-o", "yaml", "--kubeconfig", "/none").stdout
    assert "kind: JobConfig" in text
    applied = server.kiln("apply", "--dry-run", "-f", "-", stdin=text).stdout
    assert applied.count("(dry run)") == 7


def test_failed_deploy_has_its_exit_code(server: up_support.UpServer) -> None:
    (server.workdir / "broken.py").write_text("import kilnwork as kiln\n\nx = kiln.jobb\n")
    done = server.kiln("deploy", "broken.py", check=False)
    assert done.returncode == 2
    assert "broken.py:3: AttributeError" in done.stderr


# Submitting


def test_values_reach_the_function_with_their_types(jobs: Any) -> None:
    day = datetime.date(2026, 1, 2)
    run = jobs.report.submit("lima", day=day, tags=["a", "b"])
    assert run.result(PATIENCE_S) == ["lima", repr(day), "a", "b"]
    assert run.status().phase == "Succeeded"
    assert jobs.report.submit().result(PATIENCE_S) == ["oslo", "None", "b"]
    by_name = kiln.job("report").submit(city="lima", day="2026-01-02T00:00:00Z")
    assert by_name.result(PATIENCE_S) == ["lima", repr(day), "b"]


def test_indexes_and_finalizer(jobs: Any) -> None:
    run = jobs.survey.submit(base=100)
    assert list(run.results(PATIENCE_S)) == [4, 104, 204, 304]
    assert run.result() == 616
    assert run.status().indexes.succeeded == 4


def test_all_pages_of_indexes_are_read(jobs: Any) -> None:
    run = jobs.wide.submit()
    assert list(run.results(PATIENCE_S)) == list(range(501))
    assert run.result() is None


def test_large_results_and_python_objects_arrive(jobs: Any) -> None:
    runs = [jobs.large.submit(10_000), jobs.large.submit(size=200_000)]
    assert [len(run.result(PATIENCE_S)) for run in runs] == [10_000, 200_000]
    assert jobs.odd.submit().result(PATIENCE_S) == {1, 2}


def test_failure_is_raised_and_can_be_retried(jobs: Any, tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "log"
    run = jobs.fails.options(name="a-failure").submit(str(gate), log=str(log))
    with pytest.raises(kiln.JobFailed, match="ValueError: no gate") as caught:
        run.result(PATIENCE_S)
    assert (caught.value.job, caught.value.phase) == ("a-failure", "Failed")
    assert caught.value.reason == "IndexesFailed"
    assert log.read_text() == "xx"
    gate.touch()
    run.retry()
    assert run.result(PATIENCE_S) == "through"
    assert log.read_text() == "xxx"


def test_cancel_reaches_the_function(jobs: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = jobs.sleeps.submit(str(log))
    with pytest.raises(TimeoutError, match="it goes on"):
        run.result(0.1)
    waiting.wait_until(
        lambda: run.status().phase == "Running" and log.exists() and log.read_text() == "began",
        what="it runs",
        timeout_s=PATIENCE_S,
    )
    run.cancel()
    begun = time.monotonic()
    with pytest.raises(kiln.JobFailed) as caught:
        run.result(PATIENCE_S)
    assert caught.value.phase == "Killed"
    assert time.monotonic() - begun < 5
    assert log.read_text() == "cancelled"


def test_dependency_and_start_are_waited_for(jobs: Any) -> None:
    first = jobs.large.submit(1)
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1)
    run = jobs.large.options(depends_on=[first], start_after=at, priority=3).submit(2)
    assert run.result(PATIENCE_S) == "xx"
    assert first.done()
    assert datetime.datetime.now(datetime.UTC) >= at


def test_unknown_jobs_options_and_values_are_refused(
    server: up_support.UpServer, jobs: Any
) -> None:
    def names() -> set[str]:
        return {one["metadata"]["name"] for one in server.get("jobs")["items"]}

    before = names()
    with pytest.raises(kiln.ConfigurationError, match=r'"repport"; those that exist: .*report'):
        kiln.job("repport").submit()
    with pytest.raises(kiln.BadOption, match="did you mean city"):
        kiln.job("report").submit(cty="oslo")
    with pytest.raises(kiln.BadOption, match='must be one of "oslo", "lima"'):
        kiln.job("report").submit(city="paris")
    with pytest.raises(TypeError, match="'cty'"):
        jobs.report.submit(cty="oslo")
    assert names() <= before  # older ones may go meanwhile, for the limits of their history


def test_deleted_job_raises_an_error(
    server: up_support.UpServer, jobs: Any, tmp_path: Path
) -> None:
    run = jobs.sleeps.submit(str(tmp_path / "log"))
    server.kubectl("delete", "kjob", run.name)
    with pytest.raises(kiln.JobFailed, match="not there any more"):
        run.result(PATIENCE_S)


def test_session_without_a_server_is_refused_with_a_remedy() -> None:
    with kiln.start(slots=1), pytest.raises(kiln.ConfigurationError, match=r"kiln\.connect\(\)"):
        kiln.job("report").submit()


# Jobs that follow each other

CHAIN = '''\
"""A chain of jobs, deployed as a file."""

import kilnwork as kiln


def note(job: str, phase: str) -> None:
    with open("LOG", "a") as file:
        file.write(f"{job} {phase}\\n")


def total(results: list[int]) -> int:
    return sum(results)


@kiln.job
def numbers(count: int = 3) -> list[int]:
    return list(range(count))


@kiln.job(with_result_of=numbers, finalizer=total, hooks={"Succeeded": note})
def squares(item: int) -> int:
    return item * item
'''


def test_job_on_the_list_of_another_with_a_hook(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    log, file = tmp_path / "log", server.workdir / "chain.py"
    text = CHAIN.replace("LOG", str(log))
    file.write_text(text)
    server.kiln("deploy", str(file))
    assert "unchanged" in server.kiln("deploy", str(file)).stdout
    with kiln.connect(server.data):
        kiln.job("numbers").submit(count=4)
        run = kiln.job("squares").submit()
        assert run.result(timeout=PATIENCE_S) == 14
    waiting.wait_until(log.exists, what="the hook", timeout_s=PATIENCE_S)
    assert log.read_text() == f"{run.name} Succeeded\n"

    file.write_text(text.replace(', hooks={"Succeeded": note}', ', depends_on=["numbers"]'))
    done = server.kiln("deploy", str(file)).stdout
    assert "spec.template.spec.hooks: removed" in done
    assert "spec.dependsOn: added" in done
    found = server.get("jobconfigs", "squares")["spec"]
    assert "hooks" not in found["template"]["spec"]
    wanted = [{"kind": "JobConfig", "name": "numbers", "outcome": "Success"}]
    assert found["dependsOn"] == wanted
    assert "unchanged" in server.kiln("deploy", str(file)).stdout

    file.write_text(text.partition("@kiln.job(with")[0])
    assert "squares pruned" in server.kiln("deploy", str(file), "--prune").stdout
