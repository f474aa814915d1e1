"""Runs test suites side by side as one: `python -m hack.beside --logs DIRECTORY NAME=COMMAND …`.

Used by `make test-cluster`. Lines are shown as they come, under the name of their suite, until its
tests have ended; pytest's report follows at the end, failed suites last. DIRECTORY/NAME.log has
everything. The exit code is 0 if all theirs were. Ctrl-C and SIGTERM are passed to all suites; if
this process is killed, they are killed too.
"""

import argparse
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_AFTER_TESTS = re.compile(r"=+ (ERRORS|FAILURES|XPASSES|slowest|short test summary|warnings) ?")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Suite:
    """One command in its own process group, and the thread that reads its output."""

    def __init__(self, name: str, command: str, *, log: Path, width: int) -> None:
        self.name = name
        self.log = log
        self.took_s = 0.0
        self.rest: list[str] = []
        self._began = time.monotonic()
        self._heading = f"{name:{width}} | "
        self._process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            text=True,
            errors="replace",
            process_group=0,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no lock
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        progress = True
        assert self._process.stdout is not None
        with self.log.open("w") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                progress = progress and _AFTER_TESTS.match(line) is None
                if not progress:
                    self.rest.append(line)
                elif line.strip():
                    sys.stdout.write(f"{self._heading}{line}")
                    sys.stdout.flush()
        self.took_s = time.monotonic() - self._began

    def wait(self) -> int:
        code = self._process.wait()
        self._reader.join()
        return code

    def interrupt(self) -> None:
        """Send SIGINT to every process of the group, as Ctrl-C does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM to its first process, which ends the others."""
        self._process.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.beside", description=__doc__)
    parser.add_argument(
        "--logs", type=Path, required=True, help="directory, made if it is not there"
    )
    parser.add_argument("suites", nargs="+", type=_named, metavar="NAME=COMMAND")
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    width = max(len(name) for name, _ in given.suites)
    signals: list[int] = []
    suites = [
        Suite(name, command, log=given.logs / f"{name}.log", width=width)
        for name, command in given.suites
    ]

    def stop(number: int, _: object) -> None:
        signals.append(number)
        for suite in suites:
            suite.interrupt() if number == signal.SIGINT else suite.terminate()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    codes = {suite: suite.wait() for suite in suites}
    _print_reports(codes)
    if signals:
        return 128 + signals[0]
    return 1 if any(codes.values()) else 0


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not re.fullmatch(r"[a-z-]+", name) or not equals:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=COMMAND, the name in a-z and -")
    return name, command


def _print_reports(codes: dict[Suite, int]) -> None:
    """Print what each suite reported after its tests, then one line for each."""
    ordered = sorted(codes, key=lambda suite: codes[suite] != 0)
    for suite in ordered:
        print(f"\n######## {suite.name}\n{''.join(suite.rest)}", end="")
    print()
    for suite in ordered:
        result = "passed" if codes[suite] == 0 else f"FAILED with {codes[suite]}"
        print(f"{suite.name}: {result} after {suite.took_s:.0f} s, see {suite.log}")


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
