"""Lookup of the Job or JobConfig that a word names."""

import pytest

from kilnwork.api import kinds
from kilnwork.cli import errors, job_lookup


@pytest.mark.parametrize(
    ("word", "name"),
    [("job/a", "a"), ("Jobs/a", "a"), ("a", None), ("task/a", None), ("foo/a", None)],
)
def test_only_a_word_with_the_kind_is_explicit(word: str, name: str | None) -> None:
    assert job_lookup.explicit_name(word) == name


def test_plain_name_or_name_with_kind_is_accepted() -> None:
    assert job_lookup.plain_name("a") == job_lookup.plain_name("job/a") == "a"
    assert job_lookup.plain_name("jobconfig/a", kinds.JOB_CONFIGS) == "a"


@pytest.mark.parametrize("word", ["task/a", "foo/a", "job/", ""])
def test_another_kind_and_an_empty_name_are_refused(word: str) -> None:
    with pytest.raises(errors.InvalidInput):
        job_lookup.plain_name(word)


def test_invalid_config_is_an_error_that_names_it() -> None:
    found = {"metadata": {"name": "c"}, "spec": {"schedule": 3}}
    with pytest.raises(errors.CommandError, match="JobConfig c cannot be used"):
        job_lookup.decode_config(found)
