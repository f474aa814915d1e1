"""What a container writes becomes CRI lines, cut, rotated, and never an error."""

import os
from pathlib import Path

from kilnwork.controlplane.node import log_writer
from kilnwork.kit import clock
from support import small_disks

TIME = "2023-11-14T22:13:20.000000Z"


def writer(path: Path, *, limit: int = 1 << 20) -> log_writer.LogWriter:
    return log_writer.LogWriter(path, limit=limit, now=clock.ManualClock())


def test_each_line_has_time_stream_and_tag(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log")
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"bad\n")
    log.write("stdout", b"o\n\n")
    log.close()
    assert (tmp_path / "0.log").read_text().splitlines() == [
        f"{TIME} stdout F one",
        f"{TIME} stderr F bad",
        f"{TIME} stdout F two",
        f"{TIME} stdout F ",
    ]


def test_last_line_without_newline_is_written(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log")
    log.write("stdout", b"no newline")
    log.close()
    assert (tmp_path / "0.log").read_text() == f"{TIME} stdout F no newline\n"


def test_long_line_is_split_into_partial_entries(tmp_path: Path) -> None:
    line = bytes(range(65, 91)) * 2000
    log = writer(tmp_path / "0.log")
    for start in range(0, len(line), 7000):
        log.write("stdout", line[start : start + 7000])
    log.write("stdout", b"\n")
    log.close()
    entries = [e.split(b" ", 3) for e in (tmp_path / "0.log").read_bytes().splitlines()]
    assert b"".join(e[3] for e in entries) == line
    assert [e[2] for e in entries] == [b"P"] * (len(entries) - 1) + [b"F"]
    assert max(len(e[3]) for e in entries) == log_writer.MAX_LINE


def test_two_generations_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = writer(path, limit=1000)
    for number in range(100):
        log.write("stdout", f"line {number}\n".encode())
    log.close()
    kept = log_writer.previous(path).read_text() + (path.read_text() if path.exists() else "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.log", "0.log.1"]
    assert kept.splitlines()[-1].endswith("line 99")
    assert log_writer.previous(path).stat().st_size >= 1000


def test_unwritable_log_drops_lines_and_continues(tmp_path: Path) -> None:
    log = writer(tmp_path / "gone" / "0.log")
    log.write("stdout", b"lost\n")
    (tmp_path / "gone").mkdir()
    log.write("stdout", b"kept\n")
    log.close()
    assert (tmp_path / "gone" / "0.log").read_text() == f"{TIME} stdout F kept\n"


def test_log_reports_output_lost_by_a_full_disk(tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path, mib=8) as disk:
        log = writer(disk / "0.log")
        log.write("stdout", b"one\n")
        small_disks.fill(disk / "filler")
        for _ in range(3):
            log.write("stdout", b"two\n")
        (disk / "filler").unlink()
        log.write("stdout", b"three\n")
        log.close()
        texts = [line.split(b" ", 3)[3] for line in (disk / "0.log").read_bytes().splitlines()]
        assert texts == [b"one", log_writer.LOST, b"three"]


def test_output_leaves_reserved_space_for_the_journal(tmp_path: Path) -> None:
    with small_disks.mounted(tmp_path, mib=8) as disk:
        log = writer(disk / "0.log", limit=8 << 20)
        for _ in range(9 << 4):
            log.write("stdout", b"x" * 65535 + b"\n")
        log.close()
        found = os.statvfs(disk)
        assert found.f_bavail * found.f_frsize > (8 << 20) // 40
        assert (disk / "0.log").read_bytes().endswith(log_writer.LOST + b"\n")
