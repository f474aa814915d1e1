"""Lookup of the file job that a word names."""

import pytest

from kilnwork.cli import errors, file_job_lookup


@pytest.mark.parametrize(
    ("word", "name"),
    [("file/a", "a"), ("2026-01-7", "2026-01-7"), ("a", None), ("task/a", None)],
)
def test_explicit_name_of_a_file_job_is_recognised(word: str, name: str | None) -> None:
    assert file_job_lookup.explicit_name(word) == name


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["files"], []),
        (["file", "a", "b"], ["a", "b"]),
        (["file/a", "file/b"], ["a", "b"]),
        (["tasks"], None),
        (["task", "a"], None),
    ],
)
def test_arguments_name_file_jobs_or_other_objects(
    words: list[str], names: list[str] | None
) -> None:
    assert file_job_lookup.parse_file_jobs(words) == names


@pytest.mark.parametrize("words", [["files,tasks"], ["file/a", "task/b"]])
def test_file_jobs_and_objects_together_are_rejected(words: list[str]) -> None:
    with pytest.raises(errors.InvalidInput, match="in a command of their own"):
        file_job_lookup.parse_file_jobs(words)


async def test_failure_for_one_word_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = list[str]()

    async def do(word: str) -> None:
        if word.startswith("bad"):
            raise errors.Missing(f"no {word}")
        done.append(word)

    with pytest.raises(errors.Missing, match="no bad two"):
        await file_job_lookup.for_each(["bad one", "good", "bad two", "well"], do)
    assert done == ["good", "well"]
    assert capsys.readouterr().err == "error: no bad one\n"
