"""The watch over the worker's memory, which ends the largest task before the kernel kills a process
of its own choice.

Used by `agent`. At the container's limit the kernel kills some process or, when the kubelet has set
`memory.oom.group` (cgroup v2), the whole container: the worker with all its tasks. So the watch
ends the largest slot or command a little below the limit; its task fails with `OutOfMemory`, and
the message names limit and use. The watch samples often only near the limit. It also notices when
the kernel has killed a process.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kilnwork.kit import clock, processes
from kilnwork.worker import memory_measurement

log = logging.getLogger(__name__)

MAX_GROWTH_BYTES_S = 2 << 30
"""Maximum bytes per second by which the memory of a worker is expected to grow: the next sample is
taken before the limit could be reached at this rate.
"""

MIN_PAUSE_S = 0.01
"""Minimum seconds between two samples."""
MAX_PAUSE_S = 1.0
"""Maximum seconds between two samples."""

REFRESH_S = 2.0
"""Seconds after which limits are read again, and all of /proc is searched for new processes."""

NEAR_LIMIT_SHARE = 0.5
"""Share of the limit: with less room than this, the watch finds the processes that each task has
started.
"""

COST = 50
"""Measuring shared memory takes at most one part in `COST` of the time of a core."""

SHARED_BYTES = 32 << 20
"""Upper bound of the bytes that a slot shares with other slots."""

MIN_SHARE = 0.01
"""Share of the limit: a task that uses less is not ended, since it is not what fills the memory."""

GONE_S = 5.0
"""Maximum seconds until a killed process has returned its memory; after that the next task is
ended.
"""

FRESH_S = 10.0
"""Seconds for which a kill by the kernel explains the end of a process."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A slot or command that can be ended to free memory.

    `root`: pid of its first process. `end`: ends it with a message.
    """

    root: int
    end: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _State:
    """A memory limit, and how many bytes of it are used."""

    used: int
    limit: int
    share: float

    @property
    def room(self) -> int:
        return int(self.limit * self.share) - self.used


class MemoryWatch:
    """Watch over the memory of all tasks of the worker; see the module.

    `stated`: the Pod's own limit in bytes, used where no cgroup has a lower or equal one. `share`:
    the share of the limit at which the largest task is ended; 0 for never. `groups`: see
    `memory_measurement.groups`.
    """

    def __init__(
        self,
        candidates: Callable[[], Sequence[Candidate]],
        *,
        stated: int | None,
        share: float,
        groups: Sequence[memory_measurement.Group],
        clock: clock.Clock,
    ) -> None:
        self._candidates = candidates
        self._stated = stated
        self._share = share
        self._groups = groups
        self._monotonic = clock.monotonic
        # Kills from before the start of this worker explain nothing.
        self._explained = self._kills() or 0
        self._risen: float | None = None
        self._ending: int | None = None
        self._ended_at = float("-inf")
        self._refreshed = float("-inf")
        self._precise_at = float("-inf")
        self._near_limit = False
        self._limits: list[tuple[memory_measurement.Group, int]] = []
        self._families: dict[int, set[int]] = {}

    async def run(self) -> None:
        while True:
            pause_s = self.sample()
            await asyncio.sleep(pause_s)

    def sample(self) -> float:
        """Measure the memory once, and end the largest task if necessary; return the seconds until
        the next sample.
        """
        if self._monotonic() - self._refreshed >= REFRESH_S:
            self._refresh()
        states = list(self._states()) if self._share else []
        if not states:
            return MAX_PAUSE_S
        tightest = min(states, key=lambda state: state.room)
        self._near_limit = tightest.room < NEAR_LIMIT_SHARE * tightest.limit
        if tightest.room <= 0:
            self._end_largest(tightest)
            return MIN_PAUSE_S
        return min(MAX_PAUSE_S, max(MIN_PAUSE_S, tightest.room / MAX_GROWTH_BYTES_S))

    def explain_kill(self) -> str:
        """Return a message if the kernel's OOM killer has ended a process, otherwise "".

        Call this for each process that was killed, but not by this worker. Each kill by the OOM
        killer explains the end of only one process.
        """
        self._note_kills()
        kills = self._kills()
        if kills is None or kills <= self._explained:
            return ""
        self._explained += 1
        limit = min(filter(None, (group.limit() for group in self._groups)), default=None)
        peak = next((group.peak() for group in self._groups), None)
        if limit is None:
            return "the kernel ended it because the machine's memory was used up"
        most = "" if peak is None else f", of which it used up to {_size(peak)}"
        return (
            f"the kernel ended it because the worker may use no more than {_size(limit)} of "
            f"memory{most}"
        )

    # private

    def _refresh(self) -> None:
        self._refreshed = self._monotonic()
        self._note_kills()
        limits = ((group, group.limit()) for group in self._groups)
        self._limits = [(group, limit) for group, limit in limits if limit is not None]
        if self._near_limit or self._is_stated:
            self._find_families()

    def _find_families(self) -> None:
        """Find the processes of each candidate and of the whole worker; none without candidates."""
        self._families = {}
        candidates = self._candidates()
        if candidates:
            stats = processes.read_all()
            self._families = {
                each.root: memory_measurement.family(each.root, stats) for each in candidates
            }
            self._families[os.getpid()] = memory_measurement.family(os.getpid(), stats)

    def _states(self) -> Iterator[_State]:
        for group, limit in self._limits:
            used = group.used(precise_from=int(limit * self._share))
            if used is not None:
                yield _State(used, limit, self._share)
        if self._is_stated and (stated := self._stated):
            yield _State(self._used_by_processes(int(stated * self._share)), stated, self._share)

    @property
    def _is_stated(self) -> bool:
        """Return whether the limit stated by the Pod is in force, rather than that of a cgroup."""
        stated = self._stated
        return stated is not None and not any(limit <= stated for _, limit in self._limits)

    def _used_by_processes(self, threshold: int) -> int:
        """Return the bytes that all processes of the worker use.

        Only near the threshold is memory that they share counted once; elsewhere the number is an
        estimate.
        """
        roots = {each.root for each in self._candidates()}
        pids = self._families.get(os.getpid(), set()) | roots
        used = memory_measurement.estimate(pids)
        if not threshold <= used < threshold + len(pids) * SHARED_BYTES:
            return used
        before = self._monotonic()
        if before < self._precise_at:
            return threshold - 1
        used = memory_measurement.share_of(pids)
        after = self._monotonic()
        self._precise_at = after + COST * (after - before)
        return used

    def _end_largest(self, state: _State) -> None:
        now = self._monotonic()
        if self._ending is not None and now - self._ended_at < GONE_S:
            if processes.identify(self._ending) is None:
                self._ending = None
            return  # its memory is being returned, or was when `state` was measured
        families = [
            (self._families.get(each.root, set()) | {each.root}, each)
            for each in self._candidates()
        ]
        sizes = [(memory_measurement.estimate(pids), each) for pids, each in families]
        leaving = next(
            filter(memory_measurement.is_leaving, (pid for pids, _ in families for pid in pids)),
            None,
        )
        if leaving is not None and leaving != self._ending:
            # The kernel may have killed this process: then its task seems to use nothing, and the
            # next largest task would be ended in its place.
            self._ending, self._ended_at = leaving, now
            return
        size, largest = max(sizes, key=lambda pair: pair[0], default=(0, None))
        if largest is None or size < MIN_SHARE * state.limit:
            if now - self._ended_at >= GONE_S:
                self._ended_at = now
                log.warning("memory is almost used up, not by tasks", extra=_facts(state))
            return
        if all(fresh.room > 0 for fresh in self._states()):
            # The largest task may have been killed between the two measurements: then the task that
            # is largest now would be ended for memory that is free again.
            return
        self._ending, self._ended_at = largest.root, now
        log.warning("memory is almost used up: the largest task is ended", extra=_facts(state))
        largest.end(
            f"it used {_size(size)} when all of the worker used {_size(state.used)} of its limit "
            f"of {_size(state.limit)}; the worker ends the largest task at {state.share:.0%}"
        )

    def _note_kills(self) -> None:
        """Record new kills by the OOM killer, and forget kills that explained no end within
        `FRESH_S`, since they hit other processes.
        """
        kills, now = self._kills(), self._monotonic()
        if kills is None or kills <= self._explained:
            self._risen = None
        elif self._risen is None:
            self._risen = now
        elif now - self._risen > FRESH_S:
            self._explained, self._risen = kills, None

    def _kills(self) -> int | None:
        own = self._groups[0].oom_kills() if self._groups else None
        return memory_measurement.machine_oom_kills() if own is None else own


def _facts(state: _State) -> dict[str, str]:
    return {"used": _size(state.used), "limit": _size(state.limit)}


def _size(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
