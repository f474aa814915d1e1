"""A driver of a random program: `python -m support.programs.driver DIRECTORY PHASE [guest]`.

Started by `run`, which may kill it and start another. It prints its progress on standard output
(lines that begin with `@`), writes the outcomes it has seen to `outcomes-PHASE.json`, and exits
with 0, with DISPATCHER_LOST, or with a traceback.

A guest runs phase 0 beside another driver, and writes to `outcomes-guest.json`.

`ids.jsonl` has the ids of calls that are certainly accepted, so that a later driver can query them
by id as well as by key. Phase `verify` queries all of them again.
"""

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

import kilnwork as kiln
from support.programs import collection, effects, nodes, oracle, tasks, values

DISPATCHER_LOST = 7
CLUSTER = "programs"
"""The TaskCluster of a server whose workers know where effects are noted."""

RUN = "KILN_PROGRAM_RUN"
"""Variable with the number of this driver among those of its program."""

STARTED_WITHIN_S = 60.0
SERVER = "server"
"""File that names the data directory of a `kiln up` to connect to, in the place of a home."""

FUNCTIONS: dict[str, Any] = dict(tasks.FUNCTIONS)


def in_program(document: dict[str, Any], *inputs: Any) -> Any:
    """Perform a call whose function is sent with the program."""
    return tasks.perform(document, inputs, FUNCTIONS)


class Driver:
    """One run of a driver."""

    def __init__(self, directory: Path, phase: int, name: str) -> None:
        self.directory = directory
        self.phase = phase
        self.name = name
        self.program = msgspec.json.decode(
            (directory / "program.json").read_bytes(), type=nodes.Program
        )
        self.chance = random.Random(f"{self.program.seed}-{name}-{os.environ[RUN]}")
        self.futures: dict[str, Any] = {}
        self.outcomes: dict[str, Any] = {}
        self.roots: dict[str, str] = {}
        self.problems: list[str] = []
        self.ids = _known_ids(directory)

    def run(self) -> None:
        """Submit the calls of this phase, cancel, collect."""
        say("opening")
        with self.opened():
            say("open")
            self.submit()
            say("submitted")
            mine = [node for node in self.program.calls if node.phase == self.phase]
            self.cancel([node for node in mine if node.cancel])
            last = self.phase == self.program.phases - 1
            some = self.program.calls if last else mine[: len(mine) // 2]
            self.collect([node for node in some if node.id in self.futures])
            if last:
                self.submit_again()
            say("closing")
        self.remember_all()
        self.write()

    def verify(self) -> None:
        """Query all calls again, by id."""
        with self.opened():
            for name, task_id in self.ids.items():
                self.outcomes[name] = tasks.outcome(kiln.future(task_id))
        self.write()

    def opened(self) -> Any:
        server = self.directory / SERVER
        if server.exists():
            return _connected(server.read_text())
        home = self.directory / "home" if self.program.durable else None
        return kiln.start(home, slots=self.program.slots)

    # submitting

    def submit(self) -> None:
        """Submit all calls of this phase and of earlier ones, which are found again."""
        done = set[int]()
        for node in self.program.calls:
            if node.phase > self.phase or node.group in done:
                continue
            known = self.ids.get(node.id)
            if known is not None and not _is_compound(node) and self.chance.random() < 0.5:
                self.futures[node.id] = kiln.future(known)
            elif node.group and node.phase == self.phase:
                done.add(node.group)
                self.map([each for each in self.program.calls if each.group == node.group])
            elif node.key or node.phase == self.phase or known is None:
                self.futures[node.id] = tasks.submit(node, self.futures, FUNCTIONS)
            else:
                self.futures[node.id] = kiln.future(known)
        for node in self.program.calls:
            if node.key and node.id in self.futures:
                self.accepted(node)

    def map(self, group: list[nodes.Node]) -> None:
        """Submit several calls by one `map`."""
        function = tasks.in_module.options(**group[0].options)
        keys = {node.id: node.key for node in group}
        key = (lambda document: keys[document["id"]]) if group[0].key else None
        hangs = any(node.cancel for node in self.program.calls)  # a slot may not be free before
        limit = None if hangs else self.chance.choice((None, 1, 2))
        documents = [tasks.document_of(node) for node in group]
        made = function.map(documents, key=key, max_in_flight=limit)
        self.futures.update(zip((node.id for node in group), made, strict=True))

    def accepted(self, node: nodes.Node) -> None:
        """Note the id of a call with a key, once the dispatcher has the call."""
        future = self.futures[node.id]
        if _is_compound(node) or not hasattr(future, "id"):
            return
        known = self.ids.setdefault(node.id, future.id)
        if known != future.id:
            self.problems.append(f"{node.id}: its key named {known}, and now {future.id}")
        self.remember(node.id)

    def remember(self, name: str) -> None:
        with (self.directory / "ids.jsonl").open("a") as file:
            file.write(json.dumps([name, self.ids[name]]) + "\n")

    def remember_all(self) -> None:
        """Note all ids after a session that closed cleanly: every call has been accepted."""
        for node in self.program.calls:
            future = self.futures.get(node.id)
            if future is not None and not _is_compound(node) and node.id not in self.ids:
                self.ids[node.id] = future.id
                self.remember(node.id)

    def submit_again(self) -> None:
        """Check that the same key is the same call, and that other arguments are refused."""
        for node in self.program.calls:
            if not node.key or _is_compound(node) or self.chance.random() > 0.2:
                continue
            again = tasks.submit(node, self.futures, FUNCTIONS)
            same = again.id == self.futures[node.id].id
            if not same or tasks.outcome(again, 60) != self.outcomes[node.id]:
                self.problems.append(f"{node.id}: another call for the same key")
            if not node.inputs and node.via != "program":
                other = msgspec.structs.replace(node, pause_s=node.pause_s + 1)
                refused = tasks.submit(other, self.futures, FUNCTIONS).exception(60)
                if not isinstance(refused, kiln.KeyTaken):
                    self.problems.append(f"{node.id}: {refused!r} for a key that is taken")

    def cancel(self, wanted: list[nodes.Node]) -> None:
        """Cancel calls as the nodes require. A hanging call may keep another from starting until it
        is cancelled.
        """
        deadline = time.monotonic() + STARTED_WITHIN_S
        while wanted:
            for node in list(wanted):
                if self.may_cancel(node):
                    wanted.remove(node)
                    self.futures[node.id].cancel(recursive=node.cancel != "alone")
            if time.monotonic() > deadline:
                self.problems += [f"{n.id}: not started in {STARTED_WITHIN_S} s" for n in wanted]
                return
            time.sleep(0.02)

    def may_cancel(self, node: nodes.Node) -> bool:
        if node.cancel in ("started", "alone"):
            return effects.count("hang", node.id) > 0 or bool(self.futures[node.id].done())
        return node.cancel == "at-once" or self.chance.random() < 0.2

    # collecting

    def collect(self, some: tuple[nodes.Node, ...] | list[nodes.Node]) -> None:
        """Collect outcomes in the way of this phase; each is noted as seen."""
        simple = {node.id: self.futures[node.id] for node in some if not _is_compound(node)}
        seen = collection.WAYS[self.program.collect[self.phase]]
        half = len(simple) // 2

        def found(name: str, outcome: Any) -> None:
            effects.note("seen", name, getattr(simple[name], "id", "-"))
            self.outcomes[name] = outcome
            if len(self.outcomes) == half:
                say("half")

        seen(simple, found)
        for node in some:
            if node.id in simple:
                self.check_cause(node)
            if node.id not in simple:
                self.outcomes[node.id] = self.compound(node)
            elif node.op == "stream" and hasattr(simple[node.id], "__iter__"):
                self.iterate(node, simple[node.id])
            if node.cancel == "alone":
                self.alone(node.children[0])
        self.check_done(simple)

    def check_cause(self, node: nodes.Node) -> None:
        """Check that a transferred error still has its cause."""
        outcome = self.outcomes[node.id]
        if not oracle.is_error(outcome):
            return
        error = self.futures[node.id].exception()
        if outcome == oracle.INPUT_FAILED:
            self.roots[node.id] = type(error.__cause__).__name__
        elif (
            node.op == "raise" and node.times and f"cause of {node.id}" not in str(error.__cause__)
        ):
            self.problems.append(f"{node.id}: its cause is {error.__cause__!r}")

    def compound(self, node: nodes.Node) -> Any:
        """Return the outcomes of a call that has several futures, or returns them."""
        future = self.futures[node.id]
        if node.op == "pair":
            return [tasks.outcome(each) for each in future]
        error = future.exception()
        if error is not None:
            return values.plain_error(error)
        return ["boxed", [tasks.outcome(each) for each in future.result()["box"]]]

    def iterate(self, node: nodes.Node, stream: Any) -> None:
        yielded: list[Any] = []
        with contextlib.suppress(kiln.TaskError):
            yielded.extend(stream)
        if self.outcomes[node.id][0] != "error" and values.plain(yielded) != self.outcomes[node.id]:
            self.problems.append(f"{node.id}: yielded {yielded}")

    def alone(self, child: nodes.Node) -> None:
        """Check that a child outlives a parent that was cancelled without it."""
        spawned = [
            each
            for each in effects.read(Path(os.environ[effects.VARIABLE]))
            if each.kind == "spawned" and each.node == child.id
        ]
        if spawned:
            self.outcomes[child.id] = tasks.outcome(kiln.future(spawned[-1].task))

    def check_done(self, simple: dict[str, Any]) -> None:
        for name, future in simple.items():
            cancelled = self.outcomes[name] == ["error", "Cancelled", ""]
            if not future.done() or future.cancelled() != cancelled:
                self.problems.append(f"{name}: done {future.done()}, {future.cancelled()}")

    def write(self) -> None:
        document = {"outcomes": self.outcomes, "roots": self.roots, "problems": self.problems}
        path = self.directory / f"outcomes-{self.name}.json"
        path.with_suffix(".new").write_text(json.dumps(document))
        path.with_suffix(".new").rename(path)
        say("written")


def _connected(data: str) -> Any:
    """Open a session with a server that may be down just now, which is an error at once."""
    until = time.monotonic() + STARTED_WITHIN_S
    while True:
        try:
            return kiln.connect(data, cluster=CLUSTER, modules=["support"])
        except kiln.ConfigurationError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _is_compound(node: nodes.Node) -> bool:
    return node.op in ("pair", "boxed")


def _known_ids(directory: Path) -> dict[str, str]:
    try:
        lines = (directory / "ids.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # a kill may have cut the last one
            name, task_id = json.loads(line)
            found.setdefault(name, task_id)
    return found


def say(word: str) -> None:
    """Print the progress for `run`."""
    os.write(1, f"@{word}\n".encode())


def main() -> None:
    directory, phase = Path(sys.argv[1]), sys.argv[2]
    tasks.dump_on_signal()
    FUNCTIONS["program"] = kiln.task(in_program)
    name = "guest" if "guest" in sys.argv else phase
    made = Driver(directory, -1 if phase == "verify" else int(phase), name)
    try:
        made.verify() if phase == "verify" else made.run()
    except kiln.DispatcherLost as error:
        print(f"DispatcherLost: {error}", file=sys.stderr)
        sys.exit(DISPATCHER_LOST)


if __name__ == "__main__":
    main()
