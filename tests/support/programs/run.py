"""Runs the random program of one seed under its faults, and reports what was wrong.

Used by `campaigns` and `tests/faults/test_programs.py`. Drivers are processes (`driver`); here they
are started, killed along with other victims of the seed, restarted, and compared with the oracle.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kilnwork.sdk import home_supervisor
from support.programs import (
    checks,
    driver,
    effects,
    generator,
    hang_report,
    nodes,
    oracle,
    process_family,
)

DEADLINE_S = float(os.environ.get("KILN_PROGRAM_DEADLINE_S", "120"))
"""Of one run of a driver; programs take seconds."""

GONE_WITHIN_S = 30.0
MAX_RUNS = 20
_LOOK_S = 0.004
_SEARCH_S = 0.5
"""How long to wait for a victim that does not exist yet."""

TESTS = Path(__file__).parent.parent.parent


class Wrong(Exception):
    """A violation. `kind`: wrong, lost, hang, left, twice or error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class Report:
    """The result of one seed. `kind`: ok, or that of `Wrong`. `hits`: faults that found a
    victim.
    """

    seed: int
    kind: str = "ok"
    text: str = ""
    seconds: float = 0.0
    hits: list[str] = field(default_factory=list)
    directory: str = ""


class SeedRun(Protocol):
    """What `run_seed` runs: `go` raises Wrong for a violation, `destroy` kills all processes."""

    def go(self) -> None: ...

    def destroy(self) -> None: ...


def run_seed(
    seed: int, *, prefix: str, keep: bool, create: Callable[[int, Path, Report], SeedRun]
) -> Report:
    """Run one seed in a new directory below /tmp, which is kept unless the run is ok.

    `keep`: keep the directory in any case. An unexpected exception becomes a report of kind
    `error`, so that a campaign goes on.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"{prefix}{seed}-", dir="/tmp"))
    report = Report(seed, directory=str(directory))
    begun = time.monotonic()
    run = create(seed, directory, report)
    try:
        run.go()
    except Wrong as error:
        report.kind, report.text = error.kind, str(error)
    except Exception as error:  # noqa: BLE001  a campaign goes on
        report.kind, report.text = "error", f"{error!r}\n{traceback.format_exc()}"
    finally:
        run.destroy()
        report.seconds = round(time.monotonic() - begun, 2)
        if report.kind == "ok" and not keep:
            shutil.rmtree(directory, ignore_errors=True)
            report.directory = ""
    return report


def run(seed: int, *, storm: bool = False, keep: bool = False) -> Report:
    """Run one seed; its directory is kept if something was wrong, or if `keep` is set."""
    return run_program(generator.program(seed, storm=storm), keep=keep)


def run_program(program: nodes.Program, *, keep: bool = False) -> Report:
    """Run a program, which may have been reduced by hand, like `run`."""
    directory = Path(tempfile.mkdtemp(prefix=f"kp{program.seed}-", dir="/tmp"))
    report = run_in(directory, program)
    if report.kind == "ok" and not keep:
        shutil.rmtree(directory, ignore_errors=True)
        report.directory = ""
    return report


def run_in(directory: Path, program: nodes.Program, *, server: Path | None = None) -> Report:
    """Run a program in a directory that is kept. `server`: data directory of a `kiln up` that runs
    the calls.

    Then workers of its TaskCluster `driver.CLUSTER` have `effects.VARIABLE` in their environment:
    `effects_of(directory)`.
    """
    report = Report(program.seed, directory=str(directory))
    begun = time.monotonic()
    one = _Run(program, directory, report, server)
    try:
        one.go()
    except Wrong as error:
        report.kind, report.text = error.kind, str(error)
    finally:
        one.family.destroy()
        report.seconds = round(time.monotonic() - begun, 2)
    return report


def effects_of(directory: Path, epoch: int = 0) -> Path:
    """Return the file of effects. A volatile session has one for each epoch."""
    return directory / f"effects-{epoch}"


@dataclass
class _Pending:
    """A fault that waits for its moment. `due`: None until its word is printed."""

    fault: nodes.Fault
    due: float | None = None


class _Run:
    def __init__(
        self, program: nodes.Program, directory: Path, report: Report, server: Path | None
    ) -> None:
        self.program = program
        self.directory = directory
        self.report = report
        mark = f"{program.seed}-{directory.name}"
        self.family = process_family.ProcessFamily(f"{process_family.MARK}={mark}")
        self.served = server is not None
        self.epoch = 0
        self.drivers_killed = False
        self.gone_within_s = GONE_WITHIN_S
        self.disturbed = self.served
        self.paused: dict[int, float] = {}
        self.hit_in_run: list[str] = []
        self.environment = {
            **os.environ,
            process_family.MARK: mark,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "PYTHONFAULTHANDLER": "1",
            "TMPDIR": str(directory / "t"),
        }
        (directory / "t").mkdir()
        if server is not None:
            (directory / driver.SERVER).write_text(str(server))
        (directory / "program.json").write_bytes(msgspec.json.encode(program))

    @property
    def effects(self) -> Path:
        return effects_of(self.directory, self.epoch)

    def go(self) -> None:
        phase = runs = 0
        guest = self._guest() if self.program.guest else None
        while phase < self.program.phases:
            if runs > MAX_RUNS:
                raise Wrong("error", f"{runs} drivers did not bring it to its end")
            code = self._drive(str(phase), runs)
            runs += 1
            if code == 0:
                phase += 1
            elif not self._may_end(code):
                raise Wrong(
                    "error", f"the driver of phase {phase} ended with {code}:\n{self._said()}"
                )
            elif not self.program.durable:
                self.epoch += 1
                (self.directory / "ids.jsonl").unlink(missing_ok=True)  # from an earlier session
        if guest is not None:
            self._end_guest(guest)
        self._wait_gone()
        self._compare(f"outcomes-{phase - 1}.json")
        if self.program.durable:
            if self._drive("verify", MAX_RUNS + 1) != 0:
                raise Wrong("error", f"opened again, it failed:\n{self._said()}")
            self._compare("outcomes-verify.json")
            self._wait_gone()
            if not self.served and (problem := checks.journal(self.directory / "home")):
                raise Wrong("lost", problem)
        if not self.program.durable and not self.epoch:
            left = [each.name for each in (self.directory / "t").iterdir()]
            if left and not self.disturbed:
                raise Wrong("left", f"in the temporary directory: {left}")

    def _may_end(self, code: int) -> bool:
        """Return whether the faults of this run explain such an exit code."""
        if code == -signal.SIGKILL:
            return "kill driver" in self.hit_in_run
        lost = code == driver.DISPATCHER_LOST and "kill dispatcher" in self.hit_in_run
        return lost and not self.program.durable

    # one driver

    def _drive(self, phase: str, number: int) -> int:
        """Run a driver with its faults; return its exit code."""
        self.hit_in_run = []
        process = self._start(number, phase)
        try:
            self._watch(process, [_Pending(f) for f in self.program.faults if f.run == number])
        finally:
            self._continue(time.monotonic() + 1e9)
            if process.poll() is None:
                process.kill()
            code = process.wait()
            assert process.stdout is not None
            process.stdout.close()
        return code

    def _start(self, number: int, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "support.programs.driver", str(self.directory), *arguments]
        with (self.directory / "driver.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                env={
                    **self.environment,
                    effects.VARIABLE: str(self.effects),
                    driver.RUN: str(number),
                },
            )

    def _guest(self) -> subprocess.Popen[bytes]:
        return self._start(0, "0", "guest")

    def _end_guest(self, guest: subprocess.Popen[bytes]) -> None:
        """Check that the guest ends as well, unless it was killed."""
        try:
            guest.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            text = hang_report.describe(self.family, self.directory, self.effects)
            guest.kill()
            guest.communicate()
            raise Wrong("hang", f"the guest\n{text}") from None
        if guest.returncode == 0:
            self._compare("outcomes-guest.json")
        elif guest.returncode != -signal.SIGKILL or not self.drivers_killed:
            raise Wrong("error", f"the guest ended with {guest.returncode}:\n{self._said()}")
        else:  # it may have been the last one, after which the dispatcher waits for another
            self.gone_within_s += home_supervisor.IDLE_S

    def _watch(self, process: subprocess.Popen[bytes], pending: list[_Pending]) -> None:
        assert process.stdout is not None
        output = process.stdout.fileno()
        deadline = time.monotonic() + DEADLINE_S + sum(each.fault.pause_s for each in pending)
        heard = b""
        while process.poll() is None or (pending and self._soon(pending)):
            busy = bool(pending or self.paused)
            if select.select([output], [], [], _LOOK_S if busy else 0.05)[0]:
                data = os.read(output, 65536)
                heard += data
                if not data:
                    time.sleep(_LOOK_S)
            *lines, heard = heard.split(b"\n")
            now = time.monotonic()
            self._schedule(pending, {line[1:].decode() for line in lines if line[:1] == b"@"}, now)
            self._strike(pending, now)
            self._continue(now)
            if now > deadline:
                text = hang_report.describe(self.family, self.directory, self.effects)
                raise Wrong("hang", text)

    def _soon(self, pending: list[_Pending]) -> bool:
        """Return whether a fault will hit what the driver has left behind."""
        now = time.monotonic()
        pending[:] = [p for p in pending if p.due is not None and p.due < now + 0.3]
        return bool(pending)

    def _schedule(self, pending: list[_Pending], words: set[str], now: float) -> None:
        for each in pending:
            if each.due is None and each.fault.after in words:
                each.due = now + each.fault.delay_s
        if any(each.due is None and each.fault.after == "appears" for each in pending):
            kinds = set(self.family.members().values())
            for each in pending:
                if (
                    each.fault.after == "appears"
                    and each.due is None
                    and each.fault.victim in kinds
                ):
                    each.due = now + each.fault.delay_s

    def _strike(self, pending: list[_Pending], now: float) -> None:
        for each in list(pending):
            if each.due is None or each.due > now:
                continue
            fault = each.fault
            if fault.victim == "all":
                pending.remove(each)
                self._hit_all()
                continue
            victims = self.family.of_kind(fault.victim)
            if victims:
                pending.remove(each)
                self._hit(fault, victims[int(fault.delay_s * 1e4) % len(victims)], now)
            elif now > each.due + _SEARCH_S:
                pending.remove(each)

    def _hit_all(self) -> None:
        self.report.hits.append("kill all")
        self.hit_in_run += ["kill driver", "kill dispatcher"]
        self.disturbed = self.drivers_killed = True
        self.family.destroy()

    def _hit(self, fault: nodes.Fault, pid: int, now: float) -> None:
        what = f"{'pause' if fault.pause_s else 'kill'} {fault.victim}"
        self.report.hits.append(what)
        self.hit_in_run.append(what)
        self.disturbed = self.disturbed or what not in checks.HARMLESS
        self.drivers_killed = self.drivers_killed or what == "kill driver"
        try:
            os.kill(pid, signal.SIGSTOP if fault.pause_s else signal.SIGKILL)
        except ProcessLookupError:
            return
        if fault.pause_s:
            self.paused[pid] = now + fault.pause_s

    def _continue(self, now: float) -> None:
        for pid in [pid for pid, due in self.paused.items() if due <= now]:
            del self.paused[pid]
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    # checks

    def _said(self) -> str:
        paths = (self.directory / "driver.log", *self.directory.glob("home/*.log"))
        return "\n".join(f"{p.name}: {p.read_text(errors='replace')[-3000:]}" for p in paths)

    def _wait_gone(self) -> None:
        deadline = time.monotonic() + self.gone_within_s
        while left := self.family.members():
            if time.monotonic() > deadline:
                text = hang_report.describe(self.family, self.directory, self.effects)
                raise Wrong("left", f"after {self.gone_within_s} s there are still {left}\n{text}")
            time.sleep(0.05)

    def _compare(self, name: str) -> None:
        found: dict[str, Any] = json.loads((self.directory / name).read_text())
        if found["problems"]:
            raise Wrong("wrong", "; ".join(found["problems"]))
        allowed = oracle.outcomes(self.program)
        seen = found["outcomes"]
        for node, outcome in seen.items():
            if outcome not in allowed[node]:
                text = f"{name}: {node}: {outcome} instead of {allowed[node]}"
                raise Wrong("lost" if "TaskLost" in str(outcome) else "wrong", text)
        roots = oracle.roots(self.program, allowed)
        for node, root in found["roots"].items():
            if root not in roots.get(node, {root}):
                raise Wrong("wrong", f"{name}: {node}: caused by {root} instead of {roots[node]}")
        if name != f"outcomes-{self.program.phases - 1}.json":
            return
        missing = allowed.keys() - seen.keys()
        missing -= {n.children[0].id for n in self.program.calls if n.cancel == "alone"}
        if missing:
            raise Wrong("lost", f"nothing was heard of {sorted(missing)}")
        problem = checks.twice(self.program, effects.read(self.effects), disturbed=self.disturbed)
        if problem:
            raise Wrong("twice", problem)
