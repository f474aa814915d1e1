"""How old things are, for whoever deletes by age: also when somebody has set the wall clock.

Used by the retention of tasks and of file jobs. What is kept bears times of the wall clock, which
may jump. Beside it this clock counts the time that has really passed: while the process runs, that
of the monotonic clock; over a restart of the process as well, if the machine did not restart; else
what the wall clock says, but at most `MAX_STOPPED_S` for each restart. The count never goes back.
For each span between two jumps it is known how count and wall clock are apart, so a time that was
written down can be read; where it fits into several spans, the one in which it is youngest counts.
Thus nothing goes early, and some things late. See docs/decisions/0021-retention-and-clocks.md.
"""

import threading
from pathlib import Path
from typing import Annotated

import msgspec

from kilnwork.kit import clock as clocks
from kilnwork.kit import paths

SAMPLE_S = 10.0
"""How often `sample` should be called: a jump there and back in between goes unseen."""

SAVE_S = 60.0
"""How often it is written down, so that a crash loses no more of the count."""

TOLERANCE_S = 1.0
"""A wall clock that is so much off in one sample was adjusted, as NTP does it: no jump."""

MAX_STOPPED_S = 86_400.0
"""What a restart of the machine counts at most: a clock that was wrong when it came up makes
nothing older than this."""

MAX_SPANS = 64

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Of the running machine; empty where there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class _Span(msgspec.Struct):
    """Wall times from `first` to `last`; the count was the wall time plus `offset`."""

    first: float
    last: float
    offset: float


class _State(msgspec.Struct):
    """`count`: seconds, which began as those of the wall clock."""

    count: float
    wall: float
    monotonic: float
    boot: str
    spans: Annotated[list[_Span], msgspec.Meta(min_length=1)]


class RetentionClock:
    """The time that has really passed, kept in the file at `path`; None: only in memory.

    For any thread.
    """

    def __init__(self, path: Path | None, clock: clocks.Clock, *, boot: str | None = None) -> None:
        self._path = path
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        self._state = self._first() if path is None else self._restored(path) or self._first()
        self._saved, self._due = -SAVE_S, False
        self._lock = threading.RLock()

    def sample(self) -> bool:
        """Take notice of the time that has passed; True when it should be saved."""
        with self._lock:
            now = self._clock.monotonic()
            jumped = self._pass(max(0.0, now - self._state.monotonic))
            self._due = self._due or jumped or now - self._saved >= SAVE_S
            return self._due

    def old_before(self, keep_s: float) -> float:
        """The wall time: whatever bears an earlier one is older than `keep_s`."""
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
        """Seconds since something was written down at that wall time; negative: in the future."""
        with self._lock:
            self.sample()
            spans = self._state.spans
            within = [span for span in spans if span.first <= wall <= span.last] or spans
            return self._state.count - max(wall + span.offset for span in within)

    def save(self) -> None:
        """Write it down, so that the next process goes on. Blocks for a moment. Raises OSError."""
        with self._lock:
            self.sample()
            self._due, self._saved = False, self._clock.monotonic()
            content = msgspec.json.encode(self._state)
        if self._path is not None:
            paths.write_private(self._path, content, durable=True)

    def _first(self) -> _State:
        """Nothing is known of the past: until now, the wall clock was right."""
        wall = self._clock.wall()
        return _State(wall, wall, self._clock.monotonic(), self._boot, [_Span(0.0, wall, 0.0)])

    def _restored(self, path: Path) -> _State | None:
        """Of the process before; None when it left nothing that can be read."""
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
        """Count the time since the last look; True when the wall clock has jumped."""
        state, wall = self._state, self._clock.wall()
        current = state.spans[-1]
        jumped = abs(wall - state.wall - passed) > TOLERANCE_S
        if jumped:
            current.last = max(current.last, state.wall + passed)
            state.count += passed
            # It may have jumped at any moment since the last look.
            state.spans.append(_Span(wall - passed, wall, state.count - wall))
            _merge_oldest(state.spans)
        else:
            state.count = max(state.count, wall + current.offset)
            current.last = max(current.last, wall)
        state.wall, state.monotonic = wall, self._clock.monotonic()
        return jumped


def _merge_oldest(spans: list[_Span]) -> None:
    """Two spans become one, in which everything is as young as in either."""
    if len(spans) > MAX_SPANS:
        one, two = spans[:2]
        first, last = min(one.first, two.first), max(one.last, two.last)
        spans[:2] = [_Span(first, last, max(one.offset, two.offset))]
