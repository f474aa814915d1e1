"""Limits of the Jobs API as options."""

from typing import Any

import click
import pytest
from click import testing

from kilnwork.cli import jobs_api_limits


@click.command()
@jobs_api_limits.options
def _command(**given: Any) -> None:
    click.echo(repr(jobs_api_limits.chosen(given)))
    assert not given


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("500Mi", 500 << 20), ("3Gi", 3 << 30), (" 2Ti ", 2 << 40)]
)
def test_size_has_binary_units(text: str, size: int) -> None:
    assert jobs_api_limits.SIZE.convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5Gi", "10GB", "Gi", "1 Gi", "1e9"])
def test_invalid_size_explains_the_format(text: str) -> None:
    found = testing.CliRunner().invoke(_command, ["--max-upload", text])
    assert found.exit_code == 2
    assert "write it as 500Mi" in found.output


def test_limits_reach_the_settings() -> None:
    given = ["--max-upload=1Gi", "--max-input=2Gi", "--max-uploads=3", "--jobs-per-second=0.5"]
    given += ["--max-unpacked=1Ti", "--max-unpack-ratio=7", "--max-downloads=9"]
    given += ["--max-line=1Mi", "--max-files=5", "--max-files-size=3Gi"]
    found = testing.CliRunner().invoke(_command, given)
    assert "most_body_bytes=1073741824, most_stored_bytes=2147483648" in found.output
    assert "unpacked_bytes=1099511627776, unpack_ratio=7" in found.output
    assert "uploads=3, downloads=9, most_line_bytes=1048576, files_per_user=5" in found.output
    assert "files_bytes_per_user=3221225472, posts_per_second=0.5, burst=100" in found.output


def test_default_limits_neither_upload_size_nor_job_rate() -> None:
    found = testing.CliRunner().invoke(_command, [])
    assert "most_body_bytes=None" in found.output
    assert "posts_per_second=None" in found.output
