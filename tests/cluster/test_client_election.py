"""Two processes that compete for one Lease of the real API server: stopped, killed, cut off."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import kube_cluster, leader_candidate, waiting

pytestmark = pytest.mark.timeout(180)

LEASE_S = float(leader_candidate.TIMES["lease_s"])


class Candidate:
    """One candidate process and its output lines, with the time of each."""

    def __init__(self, kube: kube_cluster.Kube, namespace: str, name: str, epochs: Path) -> None:
        self.name = name
        self.said: list[tuple[float, str]] = []
        argv = [sys.executable, "-m", "support.leader_candidate"]
        self.process = subprocess.Popen(
            [*argv, str(kube.kubeconfig), namespace, name, str(epochs)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(leader_candidate.__file__).parent.parent)},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.said.append((time.monotonic(), line.strip()))

    def heard(self, word: str, *, after: float = 0.0) -> float:
        """Return when a word was first printed; 0: not yet."""
        return next((t for t, text in self.said if text.startswith(word) and t > after), 0.0)

    def epochs(self) -> list[int]:
        return [int(text.split()[1]) for _, text in self.said if text.startswith("holds")]

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self._reader.join()


class Pair:
    """A holder and the candidate that waits."""

    def __init__(self, kube: kube_cluster.Kube, namespace: str, directory: Path) -> None:
        self.epochs = directory / "epochs"
        self.epochs.touch()
        self._kube = kube
        self._namespace = namespace
        self.first = Candidate(kube, namespace, "first", self.epochs)
        waiting.wait_until(lambda: self.first.heard("holds"), what="the first term")
        self.second = Candidate(kube, namespace, "second", self.epochs)
        waiting.wait_until(lambda: self.second.heard("stands"), what="the second stands")

    def lease(self) -> dict[str, Any]:
        found: dict[str, Any] = self._kube.get(
            "-n", self._namespace, "lease", leader_candidate.LEASE
        )
        spec: dict[str, Any] = found["spec"]
        return spec

    def written(self) -> list[tuple[int, str]]:
        pairs = (line.split() for line in self.epochs.read_text().splitlines())
        return [(int(epoch), who) for epoch, who in pairs]


@pytest.fixture
def pair(kube: kube_cluster.Kube, namespace: str, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(kube, namespace, tmp_path)
    yield pair
    pair.first.end()
    pair.second.end()


def _in_order(pair: Pair) -> bool:
    """Check that no lower epoch writes after a higher one."""
    epochs = [epoch for epoch, _ in pair.written()]
    return epochs == sorted(epochs)


def _second_term(pair: Pair) -> float:
    return waiting.wait_until(
        lambda: pair.second.heard("holds"), what="the second term", timeout_s=3 * LEASE_S
    )


def test_paused_holder_is_replaced_and_notices_when_resumed(pair: Pair) -> None:
    pair.first.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    began = _second_term(pair)
    assert LEASE_S - 1 < began - stopped < 3 * LEASE_S
    waiting.wait_until(lambda: pair.written()[-1][1] == "second", what="it acts")
    pair.first.process.send_signal(signal.SIGCONT)
    waiting.wait_until(lambda: pair.first.heard("lost"), what="the first notices")
    assert _in_order(pair)
    assert (pair.first.epochs(), pair.second.epochs()) == ([1], [2])
    assert pair.lease()["holderIdentity"] == "second"
    assert pair.lease()["leaseTransitions"] == 2


def test_killed_holder_is_replaced_after_its_lease(pair: Pair) -> None:
    pair.first.process.kill()
    killed = time.monotonic()
    began = _second_term(pair)
    assert began - killed < 2 * LEASE_S


def test_stopping_holder_releases_the_lease_to_the_next(pair: Pair) -> None:
    waiting.wait_until(pair.written, what="the first acts")
    pair.first.process.terminate()
    gone = time.monotonic()
    began = _second_term(pair)
    assert began - gone < LEASE_S / 2, "it did not wait for the lease to end"
    assert pair.first.process.wait(20) == 0


def test_holder_cut_off_steps_down_before_another_can_lead(
    kube: kube_cluster.Kube, pair: Pair
) -> None:
    kube.pause_part("kube-apiserver")
    try:
        lost = waiting.wait_until(lambda: pair.first.heard("lost"), what="the first loses it")
        assert pair.second.heard("holds") == 0
    finally:
        kube.resume_part("kube-apiserver")

    def taken() -> float:
        return max(each.heard("holds", after=lost) for each in (pair.first, pair.second))

    waiting.wait_until(taken, what="one of them has it again")
    assert _in_order(pair)
    epochs = pair.first.epochs() + pair.second.epochs()
    assert len(set(epochs)) == len(epochs) == 2
