"""Options that say how much a server keeps."""

from typing import Any

import click
import pytest
from click import testing

from kilnwork.cli import retention_options
from kilnwork.dispatch.hub import retention

DAY_S = 86_400


def chosen(*words: str) -> retention.RetentionLimits:
    found = list[retention.RetentionLimits]()

    @click.command()
    @retention_options.options
    def command(**given: Any) -> None:
        found.append(retention_options.chosen(given))
        assert given == {}

    done = testing.CliRunner().invoke(command, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return found[0]


def test_default_keeps_a_week_without_size_limit() -> None:
    assert chosen() == retention.RetentionLimits(7 * DAY_S, None, None)


def test_each_limit_is_taken() -> None:
    words = ["--keep-for", "2d", "--keep-tasks", "100", "--keep-size", "2Gi"]
    assert chosen(*words) == retention.RetentionLimits(2 * DAY_S, 100, 2 << 30)


@pytest.mark.parametrize(
    "words", [("--keep-for", "soon"), ("--keep-tasks", "-1"), ("--keep-size", "large")]
)
def test_invalid_limit_is_a_usage_error(words: tuple[str, str]) -> None:
    with pytest.raises(click.BadParameter):
        chosen(*words)
