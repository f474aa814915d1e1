"""File jobs whose stored files are altered, or whose journal, workers or tasks are removed."""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import processes
from support import file_faults, up_files, waiting

SPEC: dict[str, Any] = {
    "mapper": {"function": "fault_mappers:gated"},
    "itemsPerPart": 2000,
    "retry": {"maxAttempts": 1, "maxLosses": 50, "delaySeconds": 0.1},
}
COUNT = 8000
PLAIN = b"".join(b'{"n":%d}\n' % n for n in range(COUNT))
"""Four parts, more than is kept in the journal."""

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[file_faults.FaultFiles]:
    with file_faults.running(tmp_path_factory.mktemp("store"), delay_s=0.0) as made:
        yield made


@pytest.fixture
def world(started: file_faults.FaultFiles) -> file_faults.FaultFiles:
    started.forget_notes()
    return started


def with_gate(gate: Path, at: int) -> bytes:
    """Return PLAIN with one record, `at`, that waits for a file to exist."""
    return PLAIN.replace(
        b'{"n":%d}\n' % at, b'{"n":%d,"gate":%s}\n' % (at, json.dumps(str(gate)).encode())
    )


def expected_result(result: bytes = PLAIN) -> up_files.ExpectedResult:
    return up_files.ExpectedResult(result, [], result.count(b"\n"))


def wait_for_succeeded_parts(world: file_faults.FaultFiles, job: str, count: int) -> None:
    """Wait until so many parts have succeeded."""
    waiting.wait_until(
        lambda: world.document(job)["progress"]["parts"]["succeeded"] == count,
        what=f"{count} parts are done",
    )


def running_tasks(world: file_faults.FaultFiles, job: str) -> list[str]:
    return [part["task"] for part in world.parts(job) if part["state"] == "Running"]


def test_altered_input_fails_its_part_with_the_reason(
    world: file_faults.FaultFiles,
) -> None:
    job = world.post(PLAIN, {**SPEC, "suspend": True})
    stored = world.directory / world.document(job)["storageBlobPrefix"] / "input"
    part = world.parts(job)[2]
    content = bytearray(stored.read_bytes())
    content[part["start"] + 6] ^= 1
    stored.write_bytes(content)
    world.act(job, "resume")
    found = world.ended(job)
    assert (found["phase"], found["reason"]) == ("Failed", "PartsFailed")
    assert "part 3 of the stored input is not what was uploaded" in found["message"]
    states = [part["state"] for part in world.parts(job)]
    assert states == ["Succeeded", "Succeeded", "Failed", "Succeeded"]
    stored.write_bytes(PLAIN)
    world.act(job, "redrive")
    world.ended(job)
    world.assert_sound(job, PLAIN, expected_result())
    assert [part["run"] for part in world.parts(job)] == [1, 1, 2, 1]


def test_altered_outputs_are_made_again(world: file_faults.FaultFiles, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    data = with_gate(gate, COUNT - 1)
    job = world.post(data, SPEC)
    wait_for_succeeded_parts(world, job, 3)
    out = world.directory / world.document(job)["storageBlobPrefix"] / "out"
    [one], [two] = out.glob("1-1-*"), out.glob("2-1-*")
    one.unlink()
    two.write_bytes(two.read_bytes().replace(b"2001", b"2010"))
    gate.touch()
    world.ended(job)
    world.assert_sound(job, data, expected_result())
    runs = [part["run"] for part in world.parts(job)]
    assert runs[2:] == [1, 1]
    assert min(runs[:2]) > 1


@pytest.mark.parametrize("lost", ["journal.db", "workers", "tasks"])
def test_job_completes_after_losing_its_journal_workers_or_task(
    world: file_faults.FaultFiles, tmp_path: Path, lost: str
) -> None:
    """Lose the journal with its jobs, the worker Pods with all processes, or the task of a part."""
    gate = tmp_path / "gate"
    data = with_gate(gate, 4001)
    job = world.post(data, {**SPEC, "retry": {"maxAttempts": 3, "delaySeconds": 0.1}})
    wait_for_succeeded_parts(world, job, 3)
    if lost.endswith(".db"):
        world.server.kill()
        processes.signal_all(world.server.leftovers(), signal.SIGKILL)
        for path in world.server.data.glob(f"{lost}*"):
            path.unlink()
        world.server.start()
    elif lost == "workers":
        world.server.kiln("delete", "pod", "--all")
    else:
        [task] = waiting.wait_until(lambda: running_tasks(world, job), what="the last one runs")
        world.server.kiln("cancel", task)
        found = world.ended(job)
        assert (found["phase"], found["reason"]) == ("Failed", "PartsFailed")
        assert "part 3: its task was killed" in found["message"]
        world.act(job, "redrive")
    gate.touch()
    found = world.ended(job)
    world.assert_sound(job, data, expected_result())
    runs = [part["run"] for part in world.parts(job)]
    assert [runs[0], runs[1], runs[3]] == [1, 1, 1]


@pytest.mark.parametrize("mapper", ["builtin", "command"])
def test_unusual_bytes_are_returned_unchanged(world: file_faults.FaultFiles, mapper: str) -> None:
    """NUL, invalid UTF-8, lone CR, FF, NEL, U+2028, and a line of 16 MiB."""
    lines = [b"\0\0\1", b"\xff\xfe\x80", b"a\rb\r\rc", b"\x0c\x1c\x1d", "\x85\u2028\u2029".encode(),
             b"x" * (16 << 20), b" ", b"last"]  # fmt: skip
    data = b"\n".join(lines)
    mapper_spec = {"builtin": {"builtin": "identity"}, "command": {"command": ["cat"]}}[mapper]
    spec = {
        "mapper": mapper_spec,
        "itemsPerPart": 3,
        "input": {"format": "text", "blank": "record"},
    }
    job = world.post(data, spec)
    world.ended(job)
    world.assert_sound(job, data, up_files.ExpectedResult(data + b"\n", [], len(lines)))


def test_records_that_are_not_text_are_reported_unchanged(world: file_faults.FaultFiles) -> None:
    data = b'{"n":1}\n{"n":2\0}\n\xff\xfe\n{"n":4}\r\n\r{"n":5}\r\r\n'
    job = world.post(data, {**SPEC, "itemsPerPart": 2})
    world.ended(job)
    good = b'{"n":1}\n{"n":4}\n{"n":5}\n'
    world.assert_sound(job, data, up_files.ExpectedResult(good, [2, 3], 5))
    bad = [json.loads(line) for line in world.ask("GET", f"/jobs/{job}/errors").body.splitlines()]
    assert bad[0]["raw"] == '{"n":2\0}'
    assert bad[1]["base64"] == "//4="


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"], ids=["no-bytes", "byte-order-mark"])
def test_empty_file_is_refused_and_leaves_no_files(
    world: file_faults.FaultFiles, data: bytes
) -> None:
    jobs, stored = world.jobs(), world.stored()
    response = world.ask("POST", up_files.job_url(SPEC), data)
    assert response.status == 400
    assert "empty" in response.json["detail"]
    assert (world.jobs(), world.stored()) == (jobs, stored)


@pytest.mark.timeout(300)
@pytest.mark.skipif("KILN_FAULT_FILES_RUNS" not in os.environ, reason="long: make test-faults")
def test_job_of_ten_thousand_parts_completes_despite_kills(world: file_faults.FaultFiles) -> None:
    rng = random.Random(1)
    data = b"".join(b'{"n":%d}\n' % n for n in range(10_000))
    job = world.post(data, {**SPEC, "itemsPerPart": 1})
    world.kill_at([1000, 3000, 5000, 7000, 9000], rng, job)
    world.ended(job, timeout_s=200)
    world.assert_sound(job, data, expected_result(data))
