"""Lines of several indexes on one output."""

import pytest

from kilnwork.cli import job_logs


def test_pieces_become_whole_lines_with_a_prefix(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = job_logs.Prefixed("[oslo] ")
    for piece in (b"on", b"e\ntwo\n\nthr", b"ee"):
        lines.write(piece)
    assert capfdbinary.readouterr().out == b"[oslo] one\n[oslo] two\n[oslo] \n"
    lines.close()
    assert capfdbinary.readouterr().out == b"[oslo] three\n"
    lines.close()
    assert capfdbinary.readouterr().out == b""
