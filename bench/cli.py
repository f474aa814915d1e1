"""Measures the CPU time of `kiln` commands, alternating with kubectl on the same server.

    python bench/cli.py [--only WORD] [--repeat N] [--no-gates] [--wait S] [--directory DIR]
                        [--json FILE]

One `kiln up` with a thousand tasks, bytecode compiled. `tasks`: `kiln tasks`; `get`: `kiln get
tasks`; `help`; `tab`: the words that Tab offers after `kiln why`. The floor is `kubectl get`; it is
not run where there is no kubectl. Run by `make bench`.
"""

import compileall
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import frame  # noqa: E402
import machine  # noqa: E402
from figures import Figure, Gate  # noqa: E402

import kilnwork as kiln  # noqa: E402
from support import up_server  # noqa: E402

TASKS = 1000
KILN = str(Path(sys.executable).with_name("kiln"))
KUBECTL = shutil.which("kubectl")
TAB = {"_KILN_COMPLETE": "bash_complete", "COMP_WORDS": "kiln why ", "COMP_CWORD": "2"}


@kiln.task
def nothing() -> None:
    """Do nothing."""


def cpu_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the seconds of CPU that a command took, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user = after.ru_utime - before.ru_utime
    return user + after.ru_stime - before.ru_stime


def shapes(environment: Mapping[str, str], repeat: int) -> dict[str, frame.Shape]:
    """Return measurements of commands, alternating with kubectl on the server of `environment`."""

    def measured(
        what: str,
        arguments: Sequence[str],
        *,
        at_most: float,
        more: Mapping[str, str] | None = None,
    ) -> frame.Shape:
        def shape() -> Iterator[Figure]:
            ours, theirs = [], []
            for _ in range(repeat):
                ours.append(cpu_s([KILN, *arguments], {**environment, **(more or {})}))
                if KUBECTL is not None:
                    theirs.append(cpu_s([KUBECTL, "get", "tasks"], environment))
            floor = machine.median(theirs) if theirs else None
            beside = {"beside": "kubectl get tasks"}
            yield Figure(
                what, machine.median(ours), "s CPU", floor, Gate(at_most=at_most), more=beside
            )

        return shape

    return {
        "tasks": measured("kiln tasks", ["tasks"], at_most=0.25),
        "get": measured("kiln get tasks", ["get", "tasks"], at_most=0.25),
        "help": measured("kiln tasks --help", ["tasks", "--help"], at_most=0.15),
        "tab": measured("Tab after kiln why", [], at_most=0.15, more=TAB),
    }


@contextlib.contextmanager
def served(scratch: Path) -> Iterator[Mapping[str, str]]:
    """Yield the environment of clients of a server with tasks."""
    server = up_server.UpServer(scratch / "data", workdir=scratch, slots=2)
    server.start()
    try:
        with kiln.connect(server.data):
            kiln.gather(*[nothing.submit() for _ in range(TASKS)]).result()
        yield {"KUBECONFIG": str(server.data / "kubeconfig")}
    finally:
        server.stop()


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    options = frame.parser(__doc__, name="cli").parse_args()
    compileall.compile_dir(ROOT / "src", quiet=1)
    with (
        tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=options.directory) as scratch,
        served(Path(scratch)) as environment,
    ):
        return frame.run(shapes(environment, options.repeat), options)


if __name__ == "__main__":
    sys.exit(main())
