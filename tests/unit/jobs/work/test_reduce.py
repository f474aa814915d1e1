"""All parts are reduced to one result: in order, verified, published once."""

import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import part_commits
from kilnwork.jobs.work import errors, reduce
from kilnwork.kit import clock
from kilnwork.sdk import errors as sdk_errors
from support import local_parts

HERE = "support.mapper_functions"
CONTENT = b"".join(b'{"n":%d}\n' % n if n % 7 else b"oops %d\n" % n for n in range(1, 101))
RESULTS = b"".join(b'{"n":%d}\n' % n for n in range(1, 101) if n % 7)


def world(tmp_path: Path, content: bytes = CONTENT, **spec: Any) -> local_parts.World:
    spec = {"mapper": {"function": f"{HERE}:same"}, "itemsPerPart": 9, **spec}
    made = local_parts.World(tmp_path / "job", content, **spec)
    for part in made.manifest.parts:
        made.map(part.number)
    return made


def reduced(
    here: local_parts.World,
    *,
    attempt: int = 1,
    run: int = 1,
    on_progress: Any = local_parts.ignore_progress,
    runs: dict[int, int] | None = None,
) -> filejobs.Reduced:
    work = filejobs.ReduceWork(
        store=here.store.url,
        job="job",
        parts=tuple(
            (part.number, (runs or {}).get(part.number, 1)) for part in here.manifest.parts
        ),
        run=run,
        reducer=here.spec.reducer,
        format=here.spec.input.format,
    )
    return reduce.reduce_parts(
        work, attempt=attempt, make_watch=lambda _: on_progress, clock=clock.SystemClock()
    )


def result(here: local_parts.World, *, run: int = 1) -> tuple[bytes, filejobs.Commit]:
    commit = part_commits.find(here.store, reduce.PART, run)
    assert commit is not None
    content = here.content(commit.output)
    assert commit.output is not None
    assert commit.output.sha256 == hashlib.sha256(content).hexdigest()
    return content, commit


def test_results_and_bad_records_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    here = world(tmp_path)
    assert len(here.manifest.parts) == 12
    assert reduced(here) == filejobs.Reduced()
    content, commit = result(here)
    assert content == RESULTS
    assert [each["line"] for each in here.reports(commit)] == list(range(7, 101, 7))
    assert commit.records == filejobs.Records(total=100, succeeded=86, failed=14)


LARGE = b"".join(
    b'{"n":%d,"of":"%s"}\n' % (n, b"x" * reduce.LARGE_BYTES) if n % 3 else b"oops\n"
    for n in range(1, 7)
)


@pytest.mark.parametrize("reducer", [None, {"builtin": "identity"}])
def test_large_outputs_form_result_without_copy(tmp_path: Path, reducer: Any) -> None:
    here = world(
        tmp_path, LARGE, itemsPerPart=2, mapper={"function": f"{HERE}:same"}, reducer=reducer
    )
    assert reduced(here) == filejobs.Reduced()
    commit = part_commits.find(here.store, reduce.PART, 1)
    assert commit is not None
    assert not any(key.startswith("result/") for key in here.stored())
    expected = b"".join(line for line in LARGE.splitlines(keepends=True) if line != b"oops\n")
    found, reports = here.map_all()
    assert found == expected
    digest = hashlib.sha256(expected).hexdigest()
    assert commit.output == filejobs.StoredFile(
        key=filejobs.OUTPUTS, bytes=len(expected), lines=4, sha256=digest
    )
    assert commit.errors is not None
    assert (commit.errors.key, commit.errors.lines) == (filejobs.OUTPUTS, len(reports))
    assert commit.records == filejobs.Records(total=6, succeeded=4, failed=2)


def test_large_outputs_are_verified_too(tmp_path: Path) -> None:
    here = world(tmp_path, LARGE, itemsPerPart=2, mapper={"builtin": "identity"})
    path = here.store.directory / output_key(here, 2)
    good = path.read_bytes()
    path.write_bytes(good[:-2] + b"!\n")
    damaged(here, 2)
    path.write_bytes(good)
    assert reduced(here) == filejobs.Reduced()


def test_losing_attempt_does_not_delete_large_outputs(tmp_path: Path) -> None:
    here = world(tmp_path, LARGE, itemsPerPart=2, mapper={"builtin": "identity"})
    before = here.stored()

    def on_progress(_: int) -> None:
        part_commits.fail_part(
            here.store, reduce.PART, 1, outcome=filejobs.PartOutcome.CANCELLED, message="no", at=1.0
        )

    assert reduced(here, on_progress=on_progress) == filejobs.Reduced()
    assert here.stored() == sorted([*before, "commits/0-1"])


def test_no_parts_give_empty_result(tmp_path: Path) -> None:
    here = world(tmp_path, b"")
    assert reduced(here) == filejobs.Reduced()
    content, commit = result(here)
    assert (content, commit.errors, commit.records) == (b"", None, filejobs.Records())


def test_result_is_published_once(tmp_path: Path) -> None:
    here = world(tmp_path)
    raced: list[filejobs.Reduced] = []

    def on_progress(_: int) -> None:
        if not raced:
            raced.append(filejobs.Reduced())
            raced[0] = reduced(here, attempt=2)

    assert reduced(here, attempt=1, on_progress=on_progress) == filejobs.Reduced()
    content, commit = result(here)
    assert (content, commit.attempt) == (RESULTS, 2)
    assert reduced(here, attempt=3) == filejobs.Reduced()
    keys = [key for key in here.stored() if key.startswith("result/")]
    assert keys == ["result/1-2.errors", "result/1-2.ndjson"]


def damaged(here: local_parts.World, *parts: int) -> None:
    """Check that it is refused, nothing is published, and exactly these parts are to be mapped
    again."""
    found = reduced(here).damaged
    assert [(each.part, each.run) for each in found] == [(part, 1) for part in parts]
    assert all(f"part {each.part}, run 1" in each.message for each in found)
    assert part_commits.find(here.store, reduce.PART, 1) is None
    assert not any(key.startswith("result/") for key in here.stored())


def output_key(here: local_parts.World, part: int, *, of_errors: bool = False) -> str:
    commit = part_commits.find(here.store, part, 1)
    assert commit is not None
    file = commit.errors if of_errors else commit.output
    assert file is not None
    return file.key


@pytest.mark.parametrize("which", ["output", "errors"])
def test_any_altered_file_is_reported(tmp_path: Path, which: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    here = world(tmp_path)
    key = output_key(here, 5, of_errors=which == "errors")
    path = here.store.directory / key
    good = path.read_bytes()
    at = chance.randrange(len(good))
    for bad in (
        good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :],
        good[:at],
        good + b"\n",
        b"",
    ):
        path.write_bytes(bad)
        damaged(here, 5)
    path.write_bytes(good)
    assert reduced(here) == filejobs.Reduced()


def test_all_missing_parts_are_reported_at_once(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.store.delete([output_key(here, 3), output_key(here, 11), "commits/12-1"])
    damaged(here, 3, 11, 12)


def test_unsuccessful_commit_is_reported_as_damage(tmp_path: Path) -> None:
    here = local_parts.World(tmp_path / "job", CONTENT, itemsPerPart=60)
    here.map(1)
    part_commits.fail_part(
        here.store, 2, 1, outcome=filejobs.PartOutcome.FAILED, message="no", at=1.0
    )
    damaged(here, 2)
    (here.store.directory / "commits/2-1").write_bytes(b"{")
    damaged(here, 2)


def test_remapped_part_replaces_damaged_one(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.store.delete([output_key(here, 3)])
    damaged(here, 3)
    here.map(3, run=2)
    assert reduced(here, runs={3: 2}) == filejobs.Reduced()
    assert result(here)[0] == RESULTS


def test_cancelled_reducer_leaves_nothing(tmp_path: Path) -> None:
    here = world(tmp_path)
    count = itertools.count()

    def on_progress(_: int) -> None:
        if next(count) == 5:
            raise sdk_errors.Cancelled("the task was asked to stop")

    with pytest.raises(sdk_errors.Cancelled):
        reduced(here, on_progress=on_progress)
    assert not any(key.startswith(("result/", "commits/0")) for key in here.stored())
    assert reduced(here, attempt=2) == filejobs.Reduced()
    assert result(here)[0] == RESULTS


TOTAL = sum(n for n in range(1, 101) if n % 7)


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [
        ({"function": f"{HERE}:total"}, b'{"total":%d}\n' % TOTAL),
        ({"function": f"{HERE}:evens"}, b"".join(b"%d\n" % n for n in range(2, 101, 2) if n % 7)),
        ({"function": f"{HERE}:first_only"}, b'{"n":1}\n'),
        ({"function": f"{HERE}:nothing"}, b""),
        ({"command": ["wc", "-l"]}, b"86\n"),
        ({"command": ["sort", "-r"]}, b"".join(sorted(RESULTS.splitlines(True), reverse=True))),
        ({"builtin": "identity"}, RESULTS),
    ],
)
def test_reducer_gets_all_results_in_order(
    tmp_path: Path, reducer: dict[str, Any], expected: bytes
) -> None:
    here = world(tmp_path, reducer=reducer)
    assert reduced(here) == filejobs.Reduced()
    content, commit = result(here)
    assert content == expected
    assert commit.records == filejobs.Records(total=100, succeeded=86, failed=14)
    assert len(here.reports(commit)) == 14


def test_reducer_of_text_gets_lines(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "input": {"format": "text"},
        "mapper": {"function": f"{HERE}:upper"},
        "reducer": {"function": f"{HERE}:joined"},
        "itemsPerPart": 1,
    }
    here = world(tmp_path, "a\né\nc\n".encode(), **spec)
    assert reduced(here) == filejobs.Reduced()
    assert result(here)[0] == "A+É+C\n".encode()


@pytest.mark.parametrize(
    ("reducer", "error", "message"),
    [
        ({"function": f"{HERE}:failing"}, RuntimeError, "the reducer failed"),
        ({"function": f"{HERE}:nowhere"}, errors.MapperUnusable, "cannot be loaded"),
        ({"function": f"{HERE}:unwritable"}, errors.BadResult, "JSON cannot write"),
        ({"builtin": "calculator"}, errors.MapperUnusable, "no built-in reducer"),
        ({"command": ["sh", "-c", "cat; exit 3"]}, errors.CommandFailed, "exit code 3"),
        ({"command": ["sh", "-c", "cat; echo 1 >&3"]}, errors.CommandFailed, "reducer wrote"),
        ({}, errors.MapperUnusable, "names nothing"),
    ],
)
def test_failed_reducer_publishes_nothing(
    tmp_path: Path, reducer: dict[str, Any], error: type[Exception], message: str
) -> None:
    here = world(tmp_path, reducer=reducer)
    with pytest.raises(error, match=message):
        reduced(here)
    assert not any(key.startswith(("result/", "commits/0")) for key in here.stored())


def test_altered_output_is_found_with_reducer_too(tmp_path: Path) -> None:
    """Also if the alteration is after the part that the reducer has read."""
    for number, name in enumerate(("first_only", "total")):
        here = world(tmp_path / str(number), reducer={"function": f"{HERE}:{name}"})
        path = here.store.directory / output_key(here, 12)
        path.write_bytes(path.read_bytes().replace(b"1", b"2"))
        damaged(here, 12)


def test_results_that_are_not_json_fail_function_reducer(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "mapper": {"command": ["sed", "s/^/x/"]},
        "reducer": {"function": f"{HERE}:total"},
    }
    with pytest.raises(data_errors.BadRecord, match="not JSON"):
        reduced(world(tmp_path, **spec))


def test_reduce_call_returns_json(tmp_path: Path) -> None:
    here = world(tmp_path)
    here.store.delete([output_key(here, 3)])
    found = json.loads(json.dumps(here.reduce_call()))
    assert [each["part"] for each in found["damaged"]] == [3]
