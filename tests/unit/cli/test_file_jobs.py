"""Documents of `/jobs` as text for people."""

from typing import Any

import pytest

from kilnwork.cli import errors, file_jobs

ID = "2026-11-4610526630846599105"


def job(**more: Any) -> file_jobs.Job:
    return {
        "id": ID,
        "phase": "Running",
        "creationTime": "2026-11-21T10:00:00Z",
        "parts": 3,
        "records": {"total": 200, "succeeded": 195, "failed": 2, "skipped": 3},
        "progress": {"parts": {"total": 3, "succeeded": 1, "running": 2}},
        "input": {"bytes": 4096, "lines": 500},
        "spec": {"mapper": {"builtin": "calculator"}},
        **more,
    }


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        (ID, True),
        ("f-46105266", True),
        ("f-461052", False),
        ("2026-11-1", True),
        ("2026-11", False),
        ("hello", False),
        (f"task/{ID}", False),
    ],
)
def test_ids_of_file_jobs_are_recognised_by_their_form(word: str, meant: bool) -> None:  # noqa: FBT001
    assert file_jobs.is_id(word) is meant


def test_empty_id_names_no_job() -> None:
    assert file_jobs.path() == "/jobs"
    assert file_jobs.path(ID, "results") == f"/jobs/{ID}/results"
    for empty in ("", "file/"):
        for sub in ("", "results"):
            with pytest.raises(errors.InvalidInput, match="is empty"):
                file_jobs.path(empty, sub)


def test_kind_prefix_is_accepted() -> None:
    assert file_jobs.path("file/a b") == file_jobs.path("Files/a b") == "/jobs/a%20b"
    assert file_jobs.path("task/a") == "/jobs/task%2Fa"


def test_sentence_has_the_state() -> None:
    assert file_jobs.sentence(job()) == (
        f"job {ID} is Running; 200 of 500 records and 1 of 3 parts are done, 2 bad"
    )
    failed = job(phase="Failed", message="part 2 has failed: exit code 3")
    assert file_jobs.sentence(failed).startswith(
        f"job {ID} is Failed: part 2 has failed: exit code 3; "
    )


def test_table_has_a_line_per_job() -> None:
    now = 1_795_255_200.0 + 60 * 5
    lines = file_jobs.table([job(), job(name="n")], now=now, wide=True)
    rest = f"Running 1/3 200/500 2 5m {ID} calculator 4.0 KiB 2026-11-21T10:00:00Z <none> <none>"
    assert [line.split() for line in lines[1:]] == [
        ["f-46105266", "<none>", *rest.split()],
        ["f-46105266", "n", *rest.split()],
    ]


def test_parts_show_their_lines() -> None:
    part = {
        "part": 2, "state": "Failed", "run": 1, "attempt": 3, "firstLine": 101, "lines": 100,
        "records": {"succeeded": 98, "failed": 2}, "worker": "w-0", "message": "exit code 3",
    }  # fmt: skip
    assert file_jobs.part_table([part])[1].split() == [
        "2", "Failed", "1", "3", "101-200", "98", "2", "w-0", "exit", "code", "3",
    ]  # fmt: skip


def test_only_success_is_no_error() -> None:
    file_jobs.check_end(job(phase="Succeeded"))
    for phase in ("Failed", "Cancelled"):
        with pytest.raises(errors.TaskFailed, match=f"kiln retry {ID}"):
            file_jobs.check_end(job(phase=phase))
    with pytest.raises(errors.TaskFailed, match=f"kiln results {ID} --errors.*--max-failed N"):
        file_jobs.check_end(job(phase="Failed", reason="TooManyBadRecords"))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (900 << 20, "900 MiB")],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert file_jobs.size_text(count) == text
