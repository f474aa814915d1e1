"""Campaigns: runs of many seeds of random programs or loads, resumable.

Used by `tests/faults/campaign.py`. A state file has one line of JSON per finished seed; a seed
whose last line says ok is skipped.
"""

import concurrent.futures
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

Report = dict[str, Any]


class Runs(Protocol):
    """Function that runs one seed; returns `seed`, `kind` (ok, or the kind of error), `text`,
    `seconds`.
    """

    def __call__(self, seed: int) -> Report: ...


def seeds_of(text: str) -> list[int]:
    """Parse seeds: `7`, `1:100` (inclusive), or several of these separated by commas."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition(":")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def read(state: Path) -> dict[int, Report]:
    """Return the last report of each seed."""
    try:
        lines = state.read_text().splitlines()
    except FileNotFoundError:
        return {}
    reports = [json.loads(line) for line in lines if line.strip()]
    return {report["seed"]: report for report in reports}


class Campaign:
    """One campaign. No further seed starts after `deadline` (on `time.monotonic`)."""

    def __init__(
        self,
        one: Runs,
        *,
        state: Path | None,
        say: Callable[[str], None],
        deadline: float | None = None,
    ) -> None:
        self._one = one
        self._state = state
        self._say = say
        self._deadline = deadline
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._commit = commit()
        self.reports: list[Report] = []

    def run(self, seeds: Iterable[int], *, jobs: int, again: bool = False) -> int:
        """Run the seeds that are not done (`again`: all); return 0 if all were ok."""
        wanted = list(seeds)
        before = {} if again or self._state is None else read(self._state)
        left = [seed for seed in wanted if before.get(seed, {}).get("kind") != "ok"]
        self._say(f"{len(left)} of {len(wanted)} seeds to run, commit {self._commit}")
        before_us = signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            try:
                for done in [pool.submit(self._run_one, seed) for seed in left]:
                    done.result()
            except KeyboardInterrupt:
                self._stopped.set()
                self._say("interrupted: waiting for the seeds that run")
        signal.signal(signal.SIGTERM, before_us)
        self._say(summary(self.reports))
        return 0 if all(report["kind"] == "ok" for report in self.reports) else 1

    def _run_one(self, seed: int) -> None:
        late = self._deadline is not None and time.monotonic() > self._deadline
        if late or self._stopped.is_set():
            return
        try:
            report = self._one(seed)
        except Exception as error:  # noqa: BLE001  one seed must not end a campaign
            report = {"seed": seed, "kind": "error", "text": repr(error), "seconds": 0.0}
        report |= {"commit": self._commit, "at": int(time.time())}
        with self._lock:
            self.reports.append(report)
            if self._state is not None:
                with self._state.open("a") as file:
                    file.write(json.dumps(report) + "\n")
            first = report["text"].partition("\n")[0][:200]
            self._say(f"seed {seed}: {report['kind']} in {report['seconds']} s {first}")


def summary(reports: list[Report]) -> str:
    """Return counts by result, with the seeds that were not ok."""
    counts = Counter(report["kind"] for report in reports)
    text = ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "nothing ran"
    wrong = [f"{r['seed']} ({r['kind']})" for r in reports if r["kind"] != "ok"]
    return text + (f"; not ok: {', '.join(wrong)}" if wrong else "")


def commit() -> str:
    """Return the commit of this checkout, with a + if files differ from it."""
    here = Path(__file__).parent
    words = []
    for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "-uno"]):
        done = subprocess.run(
            ["git", *command], cwd=here, capture_output=True, text=True, check=False
        )
        words.append(done.stdout.strip())
    return words[0] + ("+" if words[1] else "")
