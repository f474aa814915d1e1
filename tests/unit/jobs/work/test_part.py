"""Parts are mapped by the same rules with each mapper: ordered results, reported records,
counts."""

import json
import random
import re
import resource
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data import part_commits
from kilnwork.jobs.work import errors
from support import local_parts, mapper_functions

HERE = "support.mapper_functions"
GOLDEN = Path(__file__).parent / "golden"
SUCCEEDED, FAILED = filejobs.PartOutcome.SUCCEEDED, filejobs.PartOutcome.FAILED


def numbers(*values: object) -> bytes:
    return b"".join(json.dumps({"n": value}).encode() + b"\n" for value in values)


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"mapper": {"function": f"{HERE}:{name}", **more}}


def mapped(tmp_path: Path, content: bytes, **spec: Any) -> tuple[bytes, list[dict[str, Any]]]:
    return local_parts.World(tmp_path / "job", content, **spec).map_all()


def reasons(bad: list[dict[str, Any]]) -> dict[int, str]:
    return {each["line"]: each["reason"] for each in bad}


@pytest.mark.parametrize("lines", [1, 4, 10, 100])
def test_sample_result_is_independent_of_parts(tmp_path: Path, lines: int) -> None:
    content = (GOLDEN / "sample.jsonl").read_bytes()
    found, bad = mapped(tmp_path, content, itemsPerPart=lines)
    assert found == (GOLDEN / "sample.results.jsonl").read_bytes()
    assert not bad


def test_bad_records_are_reported_and_others_mapped(tmp_path: Path) -> None:
    content = b'{"id":"1"}\r\n\n{oops\r\n \t\n{"id":"\xff"}\n{"id":"2"}'
    world = local_parts.World(tmp_path, content)
    commit = world.map()
    assert commit.records == filejobs.Records(total=6, succeeded=2, failed=2, skipped=2)
    assert [json.loads(line)["id"] for line in world.content(commit.output).splitlines()] == [
        "1",
        "2",
    ]
    first, second = world.reports(commit)
    assert (first["line"], first["raw"]) == (3, "{oops")
    assert (second["line"], second["raw"]) == (5, '{"id":"\ufffd"}')
    assert second["base64"] == "eyJpZCI6Iv8ifQ=="


@pytest.mark.parametrize("blank", ["skip", "record"])
def test_calculator_counts_unreadable_records(tmp_path: Path, blank: str) -> None:
    """Over many batches, with blank and bad records anywhere."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    kinds = random.Random(seed).choices([b'{"id":"1"}', b"", b" \t", b"\f", b"{"], k=60_000)
    world = local_parts.World(tmp_path, b"\n".join(kinds) + b"\n", input={"blank": blank})
    commit = world.map()
    skipped = {b"", b" \t"} if blank == "skip" else set()
    bad = [n for n, kind in enumerate(kinds, 1) if kind[:2] != b'{"' and kind not in skipped]
    assert [each["line"] for each in world.reports(commit)] == bad
    good = kinds.count(b'{"id":"1"}')
    assert commit.records == filejobs.Records.of(good, len(bad), 60_000 - good - len(bad))
    assert len(world.content(commit.output).splitlines()) == good


def test_blank_lines_are_records_if_configured(tmp_path: Path) -> None:
    spec = {"input": {"format": "text", "blank": "record"}, **function("upper")}
    assert mapped(tmp_path, b"a\n\n b\r\n\r\n", **spec) == (b"A\n\n B\n\n", [])


def test_identity_returns_records_unchanged(tmp_path: Path) -> None:
    content = b'{"b": 1.50, "a":123456789012345678901234567890}\n[]\nnull\n'
    assert mapped(tmp_path, content, mapper={"builtin": "identity"}) == (content, [])


def test_csv_row_is_passed_as_dict(tmp_path: Path) -> None:
    content = b'name,size\n"a ""b""\nc, d",1\nx\ny,2\n'
    spec = {"input": {"format": "csv"}, "itemsPerPart": 1}
    for more in (function("same"), {"mapper": {"builtin": "identity"}}):
        found, bad = mapped(tmp_path / str(len(more)), content, **spec, **more)
        expected = [{"name": 'a "b"\nc, d', "size": "1"}, {"name": "y", "size": "2"}]
        assert [json.loads(line) for line in found.splitlines()] == expected
        assert [(each["line"], each["raw"]) for each in bad] == [(2, "x")]


@pytest.mark.parametrize("name", ["same", "later", "decorated"])
def test_function_may_be_plain_async_or_task(tmp_path: Path, name: str) -> None:
    wrap = {"same": b"%b\n", "later": b"[%b]\n", "decorated": b'{"task":%b}\n'}[name]
    found, bad = mapped(tmp_path, b'{"n":1}\n"x"\n', **function(name))
    assert found == wrap % b'{"n":1}' + wrap % b'"x"'
    assert not bad


def test_return_value_decides_outcome_of_record(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(0, 1, 3, 5, 7, 2), **function("some"))
    commit = world.map()
    assert world.content(commit.output) == b'{"n":1}\n0\n1\n2\n{"n":2}\n'
    assert commit.records == filejobs.Records(total=6, succeeded=3, failed=2, skipped=1)
    found = reasons(world.reports(commit))
    assert re.fullmatch(r"ValueError: five\nlines \(mapper_functions\.py:\d+\)", found[4])
    assert found[5].startswith("JSON cannot write a builtins.object")


@pytest.mark.parametrize("name", ["repeated", "repeated_later"])
def test_generators_give_several_results_or_none(tmp_path: Path, name: str) -> None:
    world = local_parts.World(tmp_path, numbers(2, 0, 3), **function(name))
    commit = world.map()
    assert world.content(commit.output) == b"0\n1\n0\n1\n2\n"
    assert commit.records == filejobs.Records(total=3, succeeded=2, skipped=1)


def test_failing_generator_gives_no_result(tmp_path: Path) -> None:
    found, bad = mapped(tmp_path, numbers(2, 4, 1), **function("repeated"))
    assert found == b"0\n1\n0\n"
    assert list(reasons(bad)) == [2]
    assert reasons(bad)[2].startswith("RuntimeError: three (mapper_functions.py:")


def test_text_is_written_unchanged(tmp_path: Path) -> None:
    words = ["str", "ended", "two", "bytes", "json", "number", "surrogate", "none", "raw"]
    content = "\n".join([*words, "decimal", "unknown"]).encode()
    found, bad = mapped(tmp_path, content, input={"format": "text"}, **function("lines"))
    assert found == "a é\na\n".encode() + b'\xff\n{"a":"\xc3\xa9"}\n1\n"1.50"\n'
    why = reasons(bad)
    assert list(why) == [3, 7, 9, 11]
    assert why[3].startswith("the result is 2 lines: yield")
    assert why[9].startswith("the result is 2 lines: yield")
    assert why[11].startswith("KeyError: 'unknown' (mapper_functions.py:")


def test_text_with_invalid_utf8_is_bad_record(tmp_path: Path) -> None:
    found, bad = mapped(tmp_path, b"a\n\xe9\n", input={"format": "text"}, **function("upper"))
    assert found == b"A\n"
    assert [(each["line"], each["base64"]) for each in bad] == [(2, "6Q==")]


def test_batches_have_requested_size(tmp_path: Path) -> None:
    mapper_functions.calls.clear()
    content = numbers(*range(10)) + b"\n"
    world = local_parts.World(tmp_path, content, **function("noted", batchRecords=4))
    commit = world.map()
    assert mapper_functions.calls == [4, 4, 2]
    assert world.content(commit.output).replace(b" ", b"") == content[:-1].replace(b" ", b"")
    assert commit.records == filejobs.Records(total=11, succeeded=10, skipped=1)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_failed_batch_is_mapped_record_by_record(tmp_path: Path, size: int) -> None:
    content = numbers(1, 0, 5) + b"x\n" + numbers(3, 7, 2)
    world = local_parts.World(tmp_path, content, **function("batch", batchRecords=size))
    commit = world.map()
    assert world.content(commit.output) == b'{"n":1}\n"a"\n"b"\n{"n":2}\n'
    assert commit.records == filejobs.Records(total=7, succeeded=3, failed=3, skipped=1)
    found = reasons(world.reports(commit))
    assert list(found) == [3, 4, 6]
    assert found[3].startswith("ValueError: five (mapper_functions.py:")
    assert found[6] == "ValueError: seven"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("too_few", "gave 0 results: give one for each"),
        ("text_of", "returned a str: return a list"),
    ],
)
def test_batch_needs_one_result_per_record(tmp_path: Path, name: str, reason: str) -> None:
    found, bad = mapped(tmp_path, numbers(1, 2), **function(name, batchRecords=10))
    assert found == b""
    assert [each["line"] for each in bad] == [1, 2]
    assert all(reason in each["reason"] for each in bad)


def test_batch_may_return_none(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1, 2), **function("nothing", batchRecords=10))
    assert world.map().records == filejobs.Records(total=2, skipped=2)


def test_fail_part_fails_the_attempt(tmp_path: Path) -> None:
    for more in ({}, {"batchRecords": 2}):
        world = local_parts.World(tmp_path, numbers(1), **function("away", **more))
        with pytest.raises(errors.FailPart, match="database"):
            world.map()
        assert world.stored() == []


@pytest.mark.parametrize(
    ("mapper", "message"),
    [
        ({"function": "nowhere:f"}, "nowhere:f cannot be loaded: ModuleNotFoundError"),
        ({"function": f"{HERE}:nothing_such"}, "cannot be loaded: AttributeError"),
        ({"function": HERE}, "write package.module:name"),
        ({"function": f"{HERE}:calls"}, "is a list, not a function"),
        ({"function": f"{HERE}:two_arguments"}, "cannot be called with one argument"),
        ({"function": "x:y", "code": "sha256:" + "0" * 64}, "cannot be loaded: NoSession"),
        ({"builtin": "nothing"}, "use one of calculator, identity"),
        ({"command": ["/nowhere/program"]}, "cannot be started"),
        ({}, "names nothing"),
    ],
)
def test_unusable_mappers_are_refused(tmp_path: Path, mapper: Any, message: str) -> None:
    world = local_parts.World(tmp_path, numbers(1), mapper=mapper)
    with pytest.raises(errors.MapperUnusable, match=message):
        world.map()
    assert world.stored() == []


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needy_mapper.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    world = local_parts.World(tmp_path, numbers(1), mapper={"function": "needy_mapper:f"})
    with pytest.raises(errors.MapperUnusable, match="Install no_such_package where"):
        world.map()


def test_bad_input_fails_part_for_good_with_policy_fail(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, b"{}\nx\n{}\n", badRecords="fail")
    commit = world.map(attempt=2)
    assert (commit.outcome, commit.attempt, commit.output) == (FAILED, 2, None)
    assert commit.message.startswith("line 2: ")
    assert [each["line"] for each in world.reports(commit)] == [2]
    assert commit == part_commits.find(world.store, 1, 1) == world.map(attempt=3)


def test_raising_mapper_is_retried_with_policy_fail(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1, 5), badRecords="fail", **function("some"))
    with pytest.raises(errors.RecordsRefused, match="line 2: ValueError: five"):
        world.map()
    assert world.stored() == []


def test_altered_input_fails_part_for_good(tmp_path: Path) -> None:
    for policy in ("report", "fail"):
        world = local_parts.World(tmp_path / policy, b"{}\nx\n", badRecords=policy)
        world.store.put("input", b"{}\ny\n")
        commit = world.map()
        assert (commit.outcome, commit.output, commit.errors) == (FAILED, None, None)
        assert "is not what was uploaded" in commit.message
        assert world.stored() == ["commits/1-1"]


def test_second_attempt_returns_commit_of_first(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1), mapper={"builtin": "identity"})
    first = world.map(attempt=1)
    assert world.map(attempt=2) == first
    assert world.stored() == ["commits/1-1", "out/1-1-1.ndjson"]
    assert world.map(attempt=2, run=2).run == 2


def test_late_attempt_loses_and_leaves_nothing(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1) + b"x\n")
    winner: list[filejobs.Commit] = []

    def paused(_: int) -> None:
        if not winner:
            winner.append(world.map(attempt=2))

    late = world.map_by(paused, attempt=1)
    assert [late] == winner
    assert world.stored() == ["commits/1-1", "out/1-1-2.errors", "out/1-1-2.ndjson"]
    assert world.content(late.output)


def test_cancelled_part_commits_nothing(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1))
    cancelled = part_commits.fail_part(
        world.store, 1, 1, outcome=filejobs.PartOutcome.CANCELLED, message="by you", at=1.0
    )
    assert world.map() == cancelled
    assert world.stored() == ["commits/1-1"]


def test_output_of_same_attempt_number_is_not_overwritten(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1), mapper={"builtin": "identity"})
    world.store.put("out/1-1-1.ndjson", b"half of")
    commit = world.map(attempt=1)
    assert commit.output is not None
    assert commit.output.key.startswith("out/1-1-1-")
    assert world.content(commit.output) == numbers(1)


def test_missing_input_is_a_store_error(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(1))
    world.store.delete(["input"])
    with pytest.raises(data_errors.ObjectMissing):
        world.map()


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    lines=st.lists(st.sampled_from([b"", b" ", b"1", b'{"n":3}', b"x", b"\xff", b'"\\n"', b"\0"])),
    ending=st.sampled_from([b"", b"\n"]),
    per_part=st.integers(1, 5),
    mapper=st.sampled_from(
        [
            {"builtin": "identity"},
            *(
                {"function": f"{HERE}:{name}", "batchRecords": size}
                for name, size in [("same", None), ("noted", 3), ("some", None), ("batch", 2)]
            ),
        ]
    ),
)
def test_parts_together_give_the_whole_result(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ending: bytes,
    per_part: int,
    mapper: dict[str, Any],
) -> None:
    """The result equals that of one process that maps the file in order, however it is divided."""
    content = b"\n".join(lines) + (ending if lines else b"")
    directory = tmp_path_factory.mktemp("job")
    one = local_parts.World(directory / "one", content, mapper=mapper).map_all()
    many = local_parts.World(directory / "many", content, mapper=mapper, itemsPerPart=per_part)
    assert many.map_all() == one


def test_full_disk_fails_attempt_and_leaves_nothing(tmp_path: Path) -> None:
    world = local_parts.World(tmp_path, numbers(*range(10_000)), mapper={"builtin": "identity"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(data_errors.StoreFull, match="Free some room"):
            world.map()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert world.stored() == []
    assert world.content(world.map(attempt=2).output) == numbers(*range(10_000))


@pytest.mark.parametrize(
    "spec", [function("same"), function("same", batchRecords=9), {"mapper": {"command": ["cat"]}}]
)
def test_one_line_of_16_mib_is_a_record(tmp_path: Path, spec: dict[str, Any]) -> None:
    content = b'{"n":"' + b"x" * ((16 << 20) - 8) + b'"}\n{"n":1}\n'
    found, bad = mapped(tmp_path, content, **spec)
    assert found == content or pytest.fail(f"{len(found)} bytes")
    assert not bad
