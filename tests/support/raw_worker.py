"""A worker that sends frames exactly as a test builds them, over a real socket."""

from pathlib import Path

from kilnwork.api import attempts
from kilnwork.channel import frames, messages
from kilnwork.kit import ids
from support import raw_link


class RawWorker(raw_link.RawLink[messages.ToWorker]):
    """One process life of a worker (a session)."""

    welcome = messages.Welcome

    def __init__(self, socket: Path, *, name: str = "w-0", slots: int = 2) -> None:
        super().__init__(socket, frames.decode_to_worker)
        self.name = name
        self.pod_uid = f"uid-{name}"
        self.slots = slots
        self.session = ids.new_session()
        self.credential = "secret"
        self.cluster = "default"
        self.running: list[attempts.AttemptRef] = []
        self.processes: tuple[messages.SlotOpening, ...] = ()
        self.serial = 0
        self.epoch = 0

    def hello(self) -> messages.Hello:
        return messages.Hello(
            messages.VERSION, "worker", self.session, self.credential, "ns", self.cluster,
            self.name, self.pod_uid, "node-1", self.slots, self.epoch,
            tuple(messages.Running(ref) for ref in self.running), self.processes,
        )  # fmt: skip

    def started(self, ref: attempts.AttemptRef, *, at: float = 0.0) -> None:
        self.serial += 1
        self.say(messages.Started(self.serial, ref, at))

    async def start_next_run(self) -> messages.Run:
        """Take the next attempt and report that it runs; returns once that is on disk."""
        run = await self.expect(messages.Run)
        self.started(run.ref)
        await self.wait_until_acknowledged(self.serial)
        return run

    def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> int:
        """Report that an attempt has ended; return the serial of the report."""
        self.serial += 1
        self.say(messages.Finished(self.serial, ref, outcome))
        return self.serial

    def succeed(self, ref: attempts.AttemptRef, data: bytes = b"null") -> int:
        """Report that an attempt ended well."""
        self.started(ref)
        payload = attempts.Payload("application/json", data)
        done = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded", exit_code=0, result=payload)
        return self.finished(ref, done)
