"""Compares kilnwork with other systems, in one run on one machine: `make bench-peers`.

    python bench/peers.py [--peers ray,dask,…] [--calls N] [--repeat N] [--keep DIR] [--no-gates]

Each system is installed into its own scratch environment, which is removed afterwards, and measured
by `peer/on_SYSTEM.py` in its own best idiom; the measurements are defined once, in
`peer/shapes.py`. Exits with 1 when kilnwork is not ahead of Ray and Dask in every shape.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import machine

HERE = Path(__file__).resolve().parent
MARK = "KILN_BENCH_MARK"
RIVALS = ("ray", "dask")
"""Those that kilnwork must be ahead of."""
ASIDE = {"version", "others %", "idle processes"}
"""Facts about a system beside the figures of its speed."""


@dataclass(frozen=True, slots=True)
class System:
    """Requirements of one system. `needs`: a program that must be on PATH, and its package."""

    packages: tuple[str, ...]
    calls: int | None = None
    needs: tuple[str, str] | None = None


REDIS = ("redis-server", "apt-get install redis-server")
SYSTEMS = {
    "ray": System(("ray",)),
    "dask": System(("distributed",)),
    "celery": System(("celery[redis]",), needs=REDIS),
    "rq": System(("rq",), calls=1_000, needs=REDIS),
    "prefect": System(("prefect", "fastapi==0.139.0"), calls=200),  # it fails with later ones
}


def environment(name: str, directory: Path) -> Path:
    """Return the interpreter of a scratch environment with that system, created if missing."""
    python = directory / name / "bin" / "python"
    if not python.exists():
        print(f"installing {' '.join(SYSTEMS[name].packages)} …", flush=True)
        venv.create(directory / name, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *SYSTEMS[name].packages], check=True)
    return python


class Run:
    """One system's script, run several times; its processes are killed afterwards."""

    def __init__(self, name: str, python: Path, script: Path, *arguments: str) -> None:
        self.name = name
        self._argv = [str(python), str(script), *arguments]
        self._mark = f"peers-{os.getpid()}-{name}".replace(" ", "-")
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - goes with this object

    def first_result(self) -> float:
        """Return the seconds from the start of a fresh interpreter to its first result."""
        began = time.perf_counter()
        process = self._start()
        self._said(process, "first")
        seconds = time.perf_counter() - began
        self._finish(process)
        return seconds

    def figures(self, *arguments: str) -> dict[str, Any]:
        """Return the figures of its script."""
        process = self._start("--all", *arguments)
        self._said(process, "first")
        found: dict[str, Any] = json.loads(self._line(process) or "{}")
        self._finish(process)
        return found

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._argv, *arguments],
            env={**os.environ, MARK: self._mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=tempfile.gettempdir(),
        )

    def _line(self, process: subprocess.Popen[str]) -> str:
        """Return the next line of our protocol; some systems print, too."""
        while line := process.stdout.readline() if process.stdout else "":
            if line.startswith(("first", "{")):
                return line.strip()
        return ""

    def _said(self, process: subprocess.Popen[str], word: str) -> None:
        if self._line(process) != word:
            process.wait(timeout=60)
            raise RuntimeError(f"{self.name} gave no result: {self._last_words()}")

    def _finish(self, process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=120)
        left = machine.tree(process.pid, mark=f"{MARK}={self._mark}") - {process.pid}
        for pid in left:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        if process.returncode:
            raise RuntimeError(f"{self.name} ended with {process.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        self._log.seek(0)
        return "\n".join(self._log.read().splitlines()[-15:])


def measured(run: Run, calls: int) -> dict[str, Any]:
    """Return all figures of one system, once; the first start only warms the disk's cache."""
    run.first_result()
    return {"first result s": run.first_result(), **run.figures("--calls", str(calls))}


def medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median figure for each shape, over rounds."""
    return {
        shape: value
        if isinstance(value, str)
        else machine.median([taken[shape] for taken in rounds if shape in taken])
        for shape, value in rounds[0].items()
    }


def missing_requirement(name: str) -> str | None:
    """Return why this system cannot be measured here, or ""."""
    program, remedy = SYSTEMS[name].needs or (None, "")
    if program is not None and shutil.which(program) is None:
        return f"{program} is not on PATH: {remedy}"
    return None


def measure_kilnwork(scratch: Path) -> dict[str, Run]:
    """Return kilnwork volatile and durable."""
    script, python = HERE / "peer" / "on_kilnwork.py", Path(sys.executable)
    durable = ["--durable", str(scratch)]
    return {
        "kilnwork": Run("kilnwork", python, script),
        "kilnwork durable": Run("kilnwork durable", python, script, *durable),
    }


def lost_shapes(taken: dict[str, dict[str, Any]]) -> list[str]:
    """Return the shapes in which a rival is ahead of kilnwork, durable or not."""
    return [
        f"{rival} is ahead of {own} in {shape}: {theirs:.4g} against {taken[own][shape]:.4g}"
        for rival in RIVALS
        for own in ("kilnwork", "kilnwork durable")
        for shape, theirs in taken.get(rival, {}).items()
        if shape not in ASIDE
        and shape in taken.get(own, {})
        and _worse(shape, taken[own][shape], theirs)
    ]


def _worse(shape: str, own: float, theirs: float) -> bool:
    return own < theirs if shape.endswith("/s") else own > theirs


def table(taken: dict[str, dict[str, Any]]) -> str:
    """Return a table with shapes as rows and systems as columns."""
    shapes = list(dict.fromkeys(shape for found in taken.values() for shape in found))
    rows = [("", *taken)]
    for shape in shapes:
        cells = [found.get(shape, "–") for found in taken.values()]
        shown = [figures.number(cell) if isinstance(cell, int | float) else cell for cell in cells]
        rows.append((shape, *shown))
    return figures.aligned(rows)


def runs(options: argparse.Namespace, names: list[str], scratch: Path) -> dict[str, Run]:
    """Return kilnwork and each system that is available here."""
    found = measure_kilnwork(scratch)
    for name in names:
        if reason := missing_requirement(name):
            print(f"skipping {name}: {reason}", flush=True)
            continue
        try:
            python = environment(name, options.keep or scratch)
        except subprocess.SubprocessError as error:
            print(f"leaving {name} out: {error}", flush=True)
            continue
        found[name] = Run(name, python, HERE / "peer" / f"on_{name}.py")
    return found


def measure(options: argparse.Namespace, found: dict[str, Run]) -> dict[str, dict[str, Any]]:
    """Measure all systems alternately in several rounds, so that disturbances affect all alike."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in found}
    for number in range(options.repeat):
        for name, run in found.items():
            print(f"round {number + 1}: {name} …", flush=True)
            calls = (SYSTEMS[name].calls if name in SYSTEMS else None) or options.calls
            try:
                rounds[name].append(measured(run, calls))
            except (RuntimeError, subprocess.SubprocessError) as error:
                print(f"leaving {name} out of this round: {error}", flush=True)
    return {name: medians(taken) for name, taken in rounds.items() if taken}


def main() -> int:
    """Install, measure, print, clean up; return 1 when a rival is ahead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--calls", type=int, default=10_000, help="calls in a burst")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; medians are shown")
    parser.add_argument("--keep", type=Path, help="keep the scratch environments here")
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for quiet")
    parser.add_argument("--no-gates", action="store_true", help="end with 0 whatever was measured")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "peers.json")
    options = parser.parse_args()
    names = [name for name in options.peers.split(",") if name]
    if unknown := set(names) - SYSTEMS.keys():
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="kiln-peers.") as scratch:
        found = runs(options, names, Path(scratch))
        quiet = machine.Patience(options.wait).wait_until_quiet()
        taken = measure(options, found)
    facts = {**machine.facts(), "quiet": quiet}
    print(f"\n{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}")
    print(table(taken))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": facts, "systems": taken}
    options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    missed = lost_shapes(taken)
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed and not options.no_gates else 0


if __name__ == "__main__":
    sys.exit(main())
