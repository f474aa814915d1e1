"""A candidate in a leader election, as a process of its own: for tests of elections.

`python -m support.leader_candidate KUBECONFIG NAMESPACE IDENTITY EPOCHS` waits for the Lease. While
it is the leader it appends lines `EPOCH IDENTITY` to the file EPOCHS, some twenty a second, and
stops when the file already has a higher epoch (as a journal does). It prints `stands`,
`holds EPOCH`, `lost WHY` and `refused EPOCH`. On SIGTERM it releases the Lease.
"""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from kilnwork.kube import client, config, election

LEASE = "candidates"
TIMES = {"lease_s": 12, "renew_s": 8.0, "retry_s": 0.3}
"""Long enough for an API server on a busy machine to stand still for some seconds."""


async def main(kubeconfig: Path, namespace: str, identity: str, *, epochs: Path) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
    settings = election.ElectionSettings(
        namespace=namespace,
        name=LEASE,
        identity=identity,
        **TIMES,  # type: ignore[arg-type]
    )
    async with client.Client(config.load(kubeconfig)) as kube:
        elector = election.Elector(kube, settings)
        _say("stands")
        try:
            while True:
                term = await elector.acquire()
                _say(f"holds {term.epoch}")
                while term.holds():
                    _act(term.epoch, identity, epochs)
                    await asyncio.sleep(0.05)
                _say(f"lost {await term.lost()}")
        except asyncio.CancelledError:
            await elector.stop()


def _act(epoch: int, identity: str, epochs: Path) -> None:
    """Append a line unless the file has one of a higher epoch, as a fenced store does in one
    transaction.
    """
    lines = epochs.read_text().splitlines()
    if lines and int(lines[-1].split()[0]) > epoch:
        _say(f"refused {epoch}")
        return
    with epochs.open("a") as file:
        file.write(f"{epoch} {identity}\n")


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], epochs=Path(sys.argv[4])))
