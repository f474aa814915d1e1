"""What attempts print: two files each, the newer and the older, in `logs/<task>/<run>-<attempt>`.

Written by the hub from Log frames, read by `server`. A file that reached `FILE_BYTES` becomes
`….log.1`, so that an attempt keeps its last 8 to 16 MiB. How often that happened is in
`….log.rotated`, so that a restarted dispatcher knows how much of the output it has. Where the
worker has dropped output, or the disk had no room for it, a line says how much, and `….log.dropped`
by how much the file is shorter than the output. Not fsynced: output is not worth a disk flush each
line, and the worker keeps what was not confirmed.
"""

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kilnwork.api import attempts
from kilnwork.data import disk_checks
from kilnwork.kit import ids

log = logging.getLogger(__name__)

FILE_BYTES = 8 << 20
MAX_PRINTED = 100_000
"""Tasks with output that are remembered, some hundred bytes each; of more, the disk is asked."""
MAX_UNMARKED = 10_000
"""Attempts that are over and whose log has yet to say that output is missing."""
MARK_SHARE = 0.5
"""Output leaves the spare room of the disk alone; the lines that say that some is missing may take
half of it."""
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def path(logs_dir: Path, ref: attempts.AttemptRef) -> Path:
    """The newer file of an attempt; the older one has `.1` appended. Neither need exist."""
    return logs_dir / ids.task_text(ref.task) / f"{ref.run}-{ref.attempt}.log"


def files(logs_dir: Path, ref: attempts.AttemptRef) -> list[Path]:
    """The files that exist, in the order in which they are to be read."""
    newer = path(logs_dir, ref)
    return [file for file in (_older(newer), newer) if file.exists()]


def _older(newer: Path) -> Path:
    return newer.with_name(newer.name + ".1")


def _rotations(newer: Path) -> Path:
    return newer.with_name(newer.name + ".rotated")


def _skew(newer: Path) -> Path:
    return newer.with_name(newer.name + ".dropped")


class _Lost(NamedTuple):
    """Bytes after what is on file that the disk has not taken; why not."""

    size: int
    why: str


class AttemptLogs:
    """Writes the output of attempts. Remembers how far each attempt's output is kept until it is
    forgotten.

    Without a directory nothing is kept, and output counts as if it were.
    """

    def __init__(self, logs_dir: Path | None, *, file_bytes: int = FILE_BYTES) -> None:
        self.logs_dir = logs_dir
        self._file_bytes = file_bytes
        self._kept: dict[attempts.AttemptRef, int] = {}
        self._lost: dict[attempts.AttemptRef, _Lost] = {}
        self._unmarked: dict[attempts.AttemptRef, _Lost] = {}
        """The same of attempts that are over."""
        self._printed: set[ids.TaskId] | None = set()
        """Tasks of which something was written; None from when they were too many."""

    @property
    def remembers(self) -> bool:
        """There is something to forget."""
        return bool(self._kept)

    def kept(self, ref: attempts.AttemptRef) -> int:
        """Output below this offset is on file."""
        offset = self._kept.get(ref)
        if offset is None:
            before = 0 if self.logs_dir is None else self._read_kept(path(self.logs_dir, ref))
            offset = self._kept[ref] = before
        return offset

    def append(self, ref: attempts.AttemptRef, offset: int, data: bytes) -> int:
        """Keep output that begins at `offset`; what is kept already is skipped.

        Returns the new `kept`. What the disk does not take, or would take from the room of the
        journal, is missing from the log, which says so once there is room.
        """
        kept = self.kept(ref)
        end = offset + len(data)
        if end <= kept:
            return kept
        if self.logs_dir is not None:
            newer = path(self.logs_dir, ref)
            try:
                self._note(ref.task)
                _check_room(self.logs_dir, len(data))
                self._write_lost(ref, newer)
                if offset > kept:
                    self._write_line(newer, attempts.dropped_line(offset - kept), offset - kept)
                self._write(newer, data[max(0, kept - offset) :])
            except OSError as error:
                if ref not in self._lost:
                    facts = {"attempt": str(ref), "error": str(error)}
                    log.warning("output was not kept", extra=facts)
                full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                why = "the disk was full" if full else error.strerror or str(error)
                self._lost[ref] = _Lost(end - self._read_kept(newer), why)
        self._kept[ref] = end
        return end

    def discard(self, ref: attempts.AttemptRef) -> None:
        """Its output comes again from the beginning."""
        self._kept[ref] = 0
        self._lost.pop(ref, None)
        if self.logs_dir is not None:
            newer = path(self.logs_dir, ref)
            for file in (newer, _older(newer), _rotations(newer), _skew(newer)):
                file.unlink(missing_ok=True)

    def forget(self, ref: attempts.AttemptRef) -> None:
        """The attempt is over: its files stay."""
        self._kept.pop(ref, None)
        lost = self._lost.pop(ref, None)
        if lost and len(self._unmarked) < MAX_UNMARKED:
            self._unmarked[ref] = lost
            self.mark()

    def mark(self) -> None:
        """Write into logs of attempts that are over that output is missing, if there is room now;
        call it every some seconds."""
        if self.logs_dir is None:
            return
        with contextlib.suppress(OSError):
            for ref in list(self._unmarked):
                _check_room(self.logs_dir, 0, share=MARK_SHARE)
                lost = self._unmarked[ref]
                newer = path(self.logs_dir, ref)
                self._write_line(newer, attempts.lost_line(*lost), lost.size)
                del self._unmarked[ref]

    def has_output(self, task: ids.TaskId, *, new: bool = False) -> bool:
        """Some attempt of it has printed something that is kept. `new`: all of them after we were
        made."""
        if self.logs_dir is None:
            return False
        if new and self._printed is not None:
            return task in self._printed
        # Of hundreds of thousands of tasks: a Path takes ten times as long, an exception thrice.
        return os.access(f"{self.logs_dir}/{ids.task_text(task)}", os.F_OK)

    def sizes(self, tasks: Iterable[ids.TaskId]) -> dict[ids.TaskId, int]:
        """Bytes that tasks have printed and are kept; blocks on the disk."""
        found = {}
        for task in tasks if self.logs_dir is not None else ():
            where = f"{self.logs_dir}/{ids.task_text(task)}"
            with contextlib.suppress(OSError), os.scandir(where) as files:  # it may have none
                found[task] = sum(file.stat().st_size for file in files)
        return found

    def delete(self, task: ids.TaskId) -> None:
        """The task is forgotten, and all that its attempts printed with it; blocks on the disk."""
        if self.logs_dir is not None:
            if self._printed is not None:
                self._printed.discard(task)
            for ref in [ref for ref in list(self._unmarked) if ref.task == task]:
                self._unmarked.pop(ref, None)
            shutil.rmtree(self.logs_dir / ids.task_text(task), ignore_errors=True)

    def _note(self, task: ids.TaskId) -> None:
        if self._printed is not None:
            self._printed.add(task)
            if len(self._printed) > MAX_PRINTED:
                self._printed = None

    def _read_kept(self, newer: Path) -> int:
        try:
            size = newer.stat().st_size
        except OSError:
            size = 0
        rotations = _number(_rotations(newer))
        return rotations * self._file_bytes + size + _number(_skew(newer))

    def _write_lost(self, ref: attempts.AttemptRef, newer: Path) -> None:
        lost = self._lost.get(ref)
        if lost:
            self._write_line(newer, attempts.lost_line(*lost), lost.size)
            del self._lost[ref]

    def _write_line(self, newer: Path, line: bytes, count: int) -> None:
        """The line for so many bytes that are missing; from now on the file is shorter by them."""
        if self._read_kept(newer):
            line = b"\n" + line
        self._write(newer, line)
        _skew(newer).write_text(str(_number(_skew(newer)) + count - len(line)))

    def _write(self, newer: Path, data: bytes) -> None:
        while data:
            with os.fdopen(_open(newer), "ab") as file:
                room = self._file_bytes - file.tell()
                file.write(data[:room])
            data = data[room:]
            if data:
                self._rotate(newer)

    def _rotate(self, newer: Path) -> None:
        counter = _rotations(newer)
        before = _number(counter)
        newer.replace(_older(newer))
        counter.write_text(str(before + 1))


def _check_room(logs_dir: Path, count: int, *, share: float = 1.0) -> None:
    """Raises OSError when so many bytes would take from the room that is kept for the journal."""
    with contextlib.suppress(FileNotFoundError):  # it is made with the first output
        if disk_checks.usable_bytes(logs_dir, share=share) < count:
            raise OSError(errno.ENOSPC, "what is left on the disk is kept for the journal")


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _open(newer: Path) -> int:
    """A descriptor to append to; the directories are made if they are not there."""
    try:
        return os.open(newer, _APPEND, 0o600)
    except FileNotFoundError:
        pass
    try:
        newer.parent.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        newer.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        newer.parent.mkdir(mode=0o700, exist_ok=True)
    return os.open(newer, _APPEND, 0o600)
