"""A clock for deletion by age that stays right when the wall clock is set.

Used by the retention of tasks and of file jobs. Stored tasks and file jobs have wall clock times,
and the wall clock may jump. This clock counts the time that has really passed: while the process
runs, by the monotonic clock; across a restart of the process also by the monotonic clock, if the
machine did not restart, else by the wall clock, but at most `MAX_STOPPED_S` per restart. The count
never goes back. For each span between two jumps, the difference of count and wall clock is known,
so a stored time can be converted; if it fits several spans, the span in which it is youngest is
used. So nothing is deleted too early, but some things are deleted late. See
docs/decisions/0021-retention-and-clocks.md.
"""

import threading
from pathlib import Path
from typing import Annotated

import msgspec

from kilnwork.kit import clock as clocks
from kilnwork.kit import data_directories

SAMPLE_S = 10.0
"""Seconds between two calls of `sample`; a jump forward and back in between is not noticed."""

SAVE_S = 60.0
"""Seconds between two saves of the count: a crash loses no more than this."""

TOLERANCE_S = 1.0
"""Maximum seconds by which the wall clock may differ from the expected time at a sample and still
count as adjusted, such as by NTP; with a larger difference it has jumped.
"""

MAX_STOPPED_S = 86_400.0
"""Maximum seconds that are counted for a restart of the machine, so that a wrong clock at boot
makes nothing older by more than this.
"""

MAX_SPANS = 64

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the boot id of this machine, "" if it has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class _Span(msgspec.Struct):
    """A span without jumps of the wall clock.

    Its wall times are `first` to `last`; the count was the wall time plus `offset`.
    """

    first: float
    last: float
    offset: float


class _State(msgspec.Struct):
    """The content of the clock's file.

    `count`: the counted seconds, which started at the wall clock time; `wall`, `monotonic`: both
    clocks at the last sample; `boot`: id of the boot.
    """

    count: float
    wall: float
    monotonic: float
    boot: str
    spans: Annotated[list[_Span], msgspec.Meta(min_length=1)]


class RetentionClock:
    """A clock that counts the time that has really passed.

    It is stored in the file at `path`, or only in memory if that is None. May be used by any
    thread.
    """

    def __init__(self, path: Path | None, clock: clocks.Clock, *, boot: str | None = None) -> None:
        self._path = path
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        self._state = self._first() if path is None else self._restored(path) or self._first()
        self._saved, self._due = -SAVE_S, False
        self._lock = threading.RLock()

    def sample(self) -> bool:
        """Count the time since the last sample; return True if `save` should be called."""
        with self._lock:
            now = self._clock.monotonic()
            jumped = self._pass(max(0.0, now - self._state.monotonic))
            self._due = self._due or jumped or now - self._saved >= SAVE_S
            return self._due

    def old_before(self, keep_s: float) -> float:
        """Return the wall clock time before which stored things are older than `keep_s`."""
        with self._lock:
            self.sample()
            count, spans = self._state.count, self._state.spans
            cutoffs = [count - keep_s - spans[-1].offset]
            for span in spans:
                cutoff = count - keep_s - span.offset
                if span.last >= cutoff:
                    cutoffs.append(max(span.first, cutoff))
            return min(cutoffs)

    def age(self, wall: float) -> float:
        """Return the age of a stored wall clock time in seconds; negative for a time in the
        future.
        """
        with self._lock:
            self.sample()
            spans = self._state.spans
            within = [span for span in spans if span.first <= wall <= span.last] or spans
            return self._state.count - max(wall + span.offset for span in within)

    def save(self) -> None:
        """Save the state of the clock for the next process. Blocks for a moment. Raises OSError."""
        with self._lock:
            self.sample()
            self._due, self._saved = False, self._clock.monotonic()
            content = msgspec.json.encode(self._state)
        if self._path is not None:
            data_directories.write_private(self._path, content, durable=True)

    def _first(self) -> _State:
        """Return an initial state, for which the wall clock is assumed to have been right until
        now.
        """
        wall = self._clock.wall()
        return _State(wall, wall, self._clock.monotonic(), self._boot, [_Span(0.0, wall, 0.0)])

    def _restored(self, path: Path) -> _State | None:
        """Return the state that the last process saved; None if no readable state exists."""
        try:
            self._state = msgspec.json.decode(path.read_bytes(), type=_State)
        except (OSError, msgspec.MsgspecError):
            return None
        same = self._boot != "" and self._boot == self._state.boot
        passed = self._clock.monotonic() - self._state.monotonic
        if not same or passed < 0:
            passed = min(max(0.0, self._clock.wall() - self._state.wall), MAX_STOPPED_S)
        self._pass(passed)
        self._state.boot = self._boot
        return self._state

    def _pass(self, passed: float) -> bool:
        """Add `passed` seconds, the time since the last sample; return True if the wall clock has
        jumped.
        """
        state, wall = self._state, self._clock.wall()
        current = state.spans[-1]
        jumped = abs(wall - state.wall - passed) > TOLERANCE_S
        if jumped:
            current.last = max(current.last, state.wall + passed)
            state.count += passed
            # The clock may have jumped at any moment since the last sample.
            state.spans.append(_Span(wall - passed, wall, state.count - wall))
            _merge_oldest(state.spans)
        else:
            state.count = max(state.count, wall + current.offset)
            current.last = max(current.last, wall)
        state.wall, state.monotonic = wall, self._clock.monotonic()
        return jumped


def _merge_oldest(spans: list[_Span]) -> None:
    """If there are too many spans, merge the two oldest into one.

    The larger of their offsets is kept, so that no time in them becomes older.
    """
    if len(spans) > MAX_SPANS:
        one, two = spans[:2]
        first, last = min(one.first, two.first), max(one.last, two.last)
        spans[:2] = [_Span(first, last, max(one.offset, two.offset))]
