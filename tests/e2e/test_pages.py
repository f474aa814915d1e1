"""README, tutorials and how-tos, followed step by step: files, commands and stated output.

Two pages have tests of their own, with more checks: first-tasks in test_tutorial.py and
migrate-from-aksjobscheduler in test_walkthrough.py. Pages that need a Kubernetes cluster are in
tests/cluster/test_pages.py. The last test here checks that each page is covered.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import ids, processes
from support import page_reader, pages, waiting
from support import up_server as up_support

SET_UP = "make setup && source .venv/bin/activate"
KILN_UP = "kiln up"

TUTORIALS = [
    page_reader.Page(path=pages.DOCS / "tutorial" / name, beforehand=(SET_UP, KILN_UP))
    for name in (
        "from-a-loop-to-a-thousand-tasks.md",
        "when-something-fails.md",
        "files.md",
        "a-nightly-report.md",
        "price-a-portfolio.md",
    )
]


def take_readme(reader: page_reader.Reader) -> None:
    """Use the README as the file whose words its program counts."""
    shutil.copy(pages.ROOT / "README.md", reader.directory)


def count_words(reader: page_reader.Reader, printed: str) -> None:
    """Check the count that the program of the README printed."""
    assert int(printed) == len((reader.directory / "README.md").read_text().split())


def use_directory(reader: page_reader.Reader, name: str) -> None:
    """Write a program that keeps its calls in a directory."""
    program = f"import kilnwork as kiln\nwith kiln.start({name!r}): pass\n"
    subprocess.run([sys.executable, "-c", program], cwd=reader.directory, check=True, timeout=60)


README = page_reader.Page(
    path=pages.ROOT / "README.md",
    beforehand=(
        "python3 -m venv .venv && source .venv/bin/activate && pip install .",
        KILN_UP,
    ),
    left_out={
        "make demo": "runs the examples, which have tests of their own",
        "make test": "runs this test",
    },
    instead={"| kubectl apply -f -": "> install.yaml"},  # applied in tests/cluster
    before={"python words.py": take_readme},
    after={"python words.py": count_words},
)


def serve_requests(reader: page_reader.Reader) -> None:
    """Write the log of a web server."""
    lines = (f'10.0.0.{n % 7} - - "GET / HTTP/1.1" 200\n' for n in range(1000))
    (reader.directory / "access.log").write_text("".join(lines))


def see_results(reader: page_reader.Reader, _: str) -> None:
    assert (reader.directory / "results" / "index.html").read_text() == "hello\n"


MAP_A_FILE = page_reader.Page(
    path=pages.DOCS / "how-to" / "map-a-file.md",
    before={"kiln upload access.log": serve_requests},
)

COMERS = [
    page_reader.Page(path=pages.DOCS / "how-to" / name)
    for name in ("migrate-from-furiko.md", "migrate-from-cronjob.md")
]

USE_KUBECTL = page_reader.Page(
    path=pages.DOCS / "how-to" / "use-kubectl.md",
    left_out={
        "export KUBECONFIG": "the environment of the test names it",
        "kubectl attach": "ends with the container, not by itself: tests/conformance attaches",
        "kubectl port-forward": "never ends: tests/conformance forwards a port",
    },
    instead={
        "exec -it my-pod -- sh": "exec -i my-pod -- sh -c 'ls results'",
        "debug -it my-pod --image=any -- sh": "debug -i my-pod --image=any -- sh -c 'echo $HOME'",
        "run -it": "run -i",
    },
    after={"kubectl cp": see_results},
)

TROUBLESHOOT = page_reader.Page(
    path=pages.DOCS / "how-to" / "troubleshoot.md",
    left_out={"kubectl": "asks a manager in a cluster: read in tests/cluster"},
    instead={"~/.local/share/kilnwork/*": "$(dirname $KUBECONFIG)/*"},
)


def start_program(reader: page_reader.Reader, *argv: str) -> None:
    """Start the executor that the page leaves running in another terminal."""
    reader.cleanup.close()
    program = subprocess.Popen(argv, cwd=reader.directory, env=dict(reader.environment))
    reader.cleanup.enter_context(program)
    reader.cleanup.callback(program.terminate)


RETRY = page_reader.Page(
    path=pages.DOCS / "how-to" / "retry-failed-tasks.md",
    instead={"$ID": "$(kiln tasks --data runs --function __main__:report -o name)"},
)

FULL_DISK = page_reader.Page(
    path=pages.DOCS / "how-to" / "clean-up-a-full-disk.md",
    left_out={"kiln up --keep-for": "never ends: tests/integration/test_cli_prune.py starts it"},
    instead={"~/.local/share/kilnwork/*": "$(dirname $KUBECONFIG)/*"},
    before={"kiln prune --older-than 1d --data runs": lambda reader: use_directory(reader, "runs")},
)

USE_SECRETS = page_reader.Page(path=pages.DOCS / "how-to" / "use-secrets.md")

YOUR_OWN_EXECUTOR = page_reader.Page(
    path=pages.DOCS / "how-to" / "write-your-own-executor.md",
    left_out={
        "python compressor.py": "never ends: start_program",
        "sh compressor.sh": "the same",
    },
    before={
        "seq 10000": lambda reader: start_program(reader, sys.executable, "compressor.py"),
        "kiln delete task/archive": lambda reader: start_program(reader, "sh", "compressor.sh"),
    },
)

EXECUTORS = page_reader.Page(
    path=pages.DOCS / "reference" / "executors.md",
    left_out={"kubectl patch": "is for who has no manager any more"},
)

PAGES = [
    TROUBLESHOOT,
    README,
    *TUTORIALS,
    *COMERS,
    MAP_A_FILE,
    YOUR_OWN_EXECUTOR,
    RETRY,
    FULL_DISK,
    pytest.param(EXECUTORS, marks=pytest.mark.kubectl, id="executors"),
    pytest.param(USE_KUBECTL, marks=pytest.mark.kubectl, id="use-kubectl"),
    pytest.param(USE_SECRETS, marks=pytest.mark.kubectl, id="use-secrets"),
]

ELSEWHERE = {
    "how-to/use-notebooks.md": "tests/e2e/test_notebook.py",
    "tutorial/first-tasks.md": "tests/e2e/test_tutorial.py",
    "how-to/migrate-from-aksjobscheduler.md": "tests/e2e/test_walkthrough.py",
    "how-to/run-on-a-cluster.md": "tests/cluster/test_pages.py",
    "how-to/attach-a-node.md": "tests/cluster/test_virtual_node.py",
}


@pytest.mark.timeout(240)
@pytest.mark.curl
@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.path.stem if isinstance(page, page_reader.Page) else None
)
def test_files_and_commands_of_the_page_work(
    up: up_support.UpServer, page: page_reader.Page
) -> None:
    mark = f"KILN_TEST_MARK={ids.new_uid()}"
    environment = {**up.environment, **dict([mark.split("=")])}
    reader = page_reader.Reader(page, up.workdir, environment)
    reader.instead["http://127.0.0.1:7444"] = up.http
    reader.read()
    waiting.wait_until(
        lambda: not processes.find_members(None, marker=mark), what="all processes have ended"
    )


def test_every_tutorial_and_how_to_is_read_by_a_test() -> None:
    whole = (
        README, *TUTORIALS, *COMERS, MAP_A_FILE, YOUR_OWN_EXECUTOR, USE_KUBECTL, USE_SECRETS,
        TROUBLESHOOT, RETRY, FULL_DISK,
    )  # fmt: skip
    read = {page.path for page in whole}
    read |= {pages.DOCS / name for name in ELSEWHERE}
    written = {
        path
        for path in pages.all_pages()
        if path.name == "README.md" or path.parent.name in ("tutorial", "how-to")
    }
    assert {path.relative_to(pages.ROOT) for path in written - read} == {Path("docs/README.md")}
    for name, test in ELSEWHERE.items():
        assert Path(name).name in (pages.ROOT / test).read_text(), f"{test} does not read {name}"
