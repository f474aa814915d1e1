"""`python -m kilnwork.dispatch` as a process: its ends, its messages, its leftovers."""

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.channel import frames, messages
from support import short_paths


class Process:
    """A dispatcher process of a directory, or of a pipe whose other end is `owner`."""

    def __init__(self, directory: Path, *arguments: str, volatile: bool = False) -> None:
        self.directory = directory
        listener = socket.socket(socket.AF_UNIX)
        self.path = directory / f"s{len(list(directory.iterdir()))}"
        listener.bind(str(self.path))
        listener.listen()
        token = directory / "token"
        token.write_text("secret\n")
        theirs, self.owner = os.pipe()
        home = ["--volatile", "--owner-fd", str(theirs)]
        home = home if volatile else ["--directory", str(directory / "home")]
        argv = [
            sys.executable, "-P", "-m", "kilnwork.dispatch", "--listen-fd", str(listener.fileno()),
            "--token-file", str(token), "--blobs", str(directory / "blobs"), *home, *arguments,
        ]  # fmt: skip
        self.child = subprocess.Popen(
            argv, stderr=subprocess.PIPE, pass_fds=[listener.fileno(), theirs], text=True
        )
        os.close(theirs)
        listener.close()

    def driver(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(30)
        link.connect(str(self.path))
        hello = messages.DriverHello(messages.VERSION, os.urandom(16), "secret", "default", 0)
        link.sendall(frames.encode(hello))
        attached = read(link)
        assert isinstance(attached, messages.Attached), attached
        assert attached.blobs == str(self.directory / "blobs" / "default")
        return link

    def end(self) -> tuple[int, str]:
        """Return its exit code and its last message."""
        _, output = self.child.communicate(timeout=30)
        return self.child.returncode, output

    def clear(self) -> None:
        """Kill the process."""
        self.child.kill()
        self.child.communicate()
        os.close(self.owner)


def read(link: socket.socket) -> messages.ToDriver:
    cutter = frames.Cutter()
    while True:
        bodies = cutter.feed(link.recv(1 << 16))
        if bodies:
            return frames.decode_to_driver(bodies[0])


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    directory = short_paths.directory()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def started(short_tmp: Path) -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.clear()


def test_sigterm_ends_it_with_a_message(short_tmp: Path, started: list[Process]) -> None:
    process = Process(short_tmp)
    started.append(process)
    with process.driver() as link:
        process.child.send_signal(signal.SIGINT)  # Ctrl-C is for the driver
        process.child.send_signal(signal.SIGTERM)
        last = read(link)
        assert isinstance(last, messages.Refused)
        assert (last.reason, last.retry) == ("Leaving", False)
    assert process.end() == (0, "")
    journal = short_tmp / "home" / "journal.db"
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_second_dispatcher_names_the_first(short_tmp: Path, started: list[Process]) -> None:
    started.append(Process(short_tmp))
    started[0].driver().close()
    started.append(Process(short_tmp))
    code, output = started[1].end()
    assert code == 3
    assert f"in use by process {started[0].child.pid}" in output.splitlines()[-1]


def test_bad_arguments_are_named(short_tmp: Path, started: list[Process]) -> None:
    process = Process(short_tmp, "--idle-seconds", "soon")
    started.append(process)
    assert process.end() == (2, "--idle-seconds: 'soon' is no number of seconds\n")


def test_volatile_dispatcher_ends_with_its_owner(short_tmp: Path, started: list[Process]) -> None:
    scratch = short_tmp / "scratch"
    scratch.mkdir()
    (scratch / "file").write_text("x")
    process = Process(short_tmp, "--scratch", str(scratch), volatile=True)
    started.append(process)
    process.driver().close()
    before = process.owner
    process.owner = os.dup(0)
    os.close(before)
    assert process.end() == (0, "")
    assert not scratch.exists()


def test_idle_dispatcher_ends_after_its_time(short_tmp: Path, started: list[Process]) -> None:
    process = Process(short_tmp, "--idle-seconds", "1")  # for its driver to be let in, too
    started.append(process)
    with process.driver() as link:
        assert not select.select([link], [], [], 1.5)[0], "it left though a driver was connected"
    assert process.end() == (0, "")


def test_sigusr1_ends_it_once_its_driver_disconnects(
    short_tmp: Path, started: list[Process]
) -> None:
    process = Process(short_tmp, "--idle-seconds", "3600")
    started.append(process)
    with process.driver():
        process.child.send_signal(signal.SIGUSR1)
        assert process.child.poll() is None
    assert process.end() == (0, "")


def test_after_sigusr1_it_stays_for_a_later_driver(short_tmp: Path, started: list[Process]) -> None:
    process = Process(short_tmp, "--idle-seconds", "3600")
    started.append(process)
    first, second = process.driver(), process.driver()
    process.child.send_signal(signal.SIGUSR1)
    with process.driver():
        first.close()
        second.close()
    with process.driver():
        assert process.child.poll() is None


def test_damaged_journal_is_named(short_tmp: Path, started: list[Process]) -> None:
    home = short_tmp / "home"
    home.mkdir()
    (home / "journal.db").write_bytes(b"no database at all, but long enough" * 100)
    process = Process(short_tmp)
    started.append(process)
    code, output = process.end()
    assert (code, output.count("\n")) == (1, 1)
    assert "journal.db is no journal of kilnwork" in output
