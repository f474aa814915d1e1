"""Makes a random program, and the faults that it must tolerate, from a seed.

Used by `run`. The same seed gives the same program for ever; a change here changes the meaning of
all seeds, so raise VERSION, which campaigns write into their state files (`campaigns`).
"""

import random

import msgspec

from support.programs import nodes, tasks

VERSION = 2
"""Version of the meaning of seeds."""

COLLECT = ("result", "reverse", "gather", "as_completed", "wait", "async", "threads", "callbacks")
_MAX_DEPTH = 3
_MAX_NODES = 45
_ERRORS = ("Boom", "ValueError", "KeyError", "OSError")
_SHAPES = ("int", "int", "str", "none", "float", "tuple", "dict", "set", "list", "bytes")


def program(seed: int, *, served: bool = False, storm: bool = False) -> nodes.Program:
    """Return the program of this seed.

    `served`: it runs on a server, which is killed with its workers by others. `storm`: with several
    times as many faults, most of them at starts and ends.
    """
    return _Maker(seed, served=served, storm=storm).program()


class _Maker:
    def __init__(self, seed: int, *, served: bool, storm: bool) -> None:
        self._seed = seed
        self._chance = random.Random(f"program-{VERSION}-{seed}")
        self._served = served
        self._storm = storm
        self._durable = self._chance.random() < 0.75 or served
        self._phases = self._chance.choice((1, 1, 2, 3)) if self._durable else 1
        self._left = _MAX_NODES
        self._options: dict[str, object] = {}

    def program(self) -> nodes.Program:
        chance = self._chance
        faults = self._faults() + (self._more_faults() if self._storm else [])
        kills = sum(fault.pause_s == 0 for fault in faults)
        if kills > 2 or self._served:
            self._options["max_losses"] = 20
        calls: list[nodes.Node] = []
        for at in range(chance.randint(4, 14)):
            if self._left > 0:
                calls.append(self._call(f"c{at}", calls))
        return nodes.Program(
            seed=self._seed,
            durable=self._durable,
            slots=chance.choice((1, 2, 2, 3, 4)),
            phases=self._phases,
            collect=tuple(chance.choice(COLLECT) for _ in range(self._phases)),
            calls=tuple(self._grouped(calls)),
            guest=self._durable and not self._served and chance.random() < 0.15,
            faults=tuple(faults),
        )

    def _call(self, name: str, before: list[nodes.Node]) -> nodes.Node:
        chance = self._chance
        node = self._node(name, before, depth=0, top=True)
        changes: dict[str, object] = {"phase": chance.randrange(self._phases)}
        needed = [n.phase for n in before for i in node.inputs if i.ref == n.id]
        changes["phase"] = max([int(str(changes["phase"])), *needed])
        if self._durable and (node.op == "hang" or chance.random() < 0.85):
            changes["key"] = f"k-{name}"
        if node.op in ("value", "spawn") and not node.cancel and chance.random() < 0.06:
            changes["cancel"] = "racing"
            changes["options"] = {**node.options, "kill_grace": 0.3}
        return msgspec.structs.replace(node, **changes)

    def _node(self, name: str, before: list[nodes.Node], *, depth: int, top: bool) -> nodes.Node:
        self._left -= 1
        chance = self._chance
        kinds = {"value": 30, "raise": 7, "flaky": 8, "crash": 5, "lock": 1, "ref": 2}
        if depth < _MAX_DEPTH and self._left > 0:
            kinds["spawn"] = 30 if depth == 0 else 18
        if top:
            kinds |= {"stream": 5, "pair": 5, "hang": 9}
            if self._left > 0:
                kinds["boxed"] = 3
        else:
            kinds["hang"] = 3
        operation = chance.choices(list(kinds), list(kinds.values()))[0]
        common = {
            "id": name,
            "op": operation,
            "pause_s": round(chance.choice((0, 0, chance.uniform(0, 0.25))), 3),
            "inputs": self._inputs(before),
            "via": "module",
            "options": dict(self._options),
        }
        made = msgspec.convert(common, nodes.Node)
        return getattr(self, f"_{operation}")(made, depth)  # type: ignore[no-any-return]

    def _inputs(self, before: list[nodes.Node]) -> tuple[nodes.Input, ...]:
        chance = self._chance
        usable = [n for n in before if n.op != "boxed" and n.cancel != "racing"]
        found = []
        for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
            kind = chance.random()
            if usable and kind < 0.65:
                node = chance.choice(usable)
                item = chance.randrange(2) if node.op == "pair" else -1
                found.append(nodes.Input(ref=node.id, item=item, nested=chance.random() < 0.3))
            elif kind < 0.72:
                found.append(nodes.Input(put_bytes=chance.choice((10, 5_000, 300_000))))
            elif kind < 0.78:
                found.append(nodes.Input(bytes=chance.choice((0, 1, 70_000, 2_000_000))))
            else:
                found.append(
                    nodes.Input(literal=chance.choice((1, "a", None, 2.5, [1, 2], {"b": 1})))
                )
        return tuple(found)

    def _changed(self, node: nodes.Node, **changes: object) -> nodes.Node:
        """Return the node with options that any kind may have."""
        chance = self._chance
        options = {**node.options, **changes.pop("options", {})}  # type: ignore[dict-item]
        if chance.random() < 0.2:
            options["priority"] = chance.randint(-2, 5)
        changes["options"] = options
        if any(each.ref for each in node.inputs) and chance.random() < 0.4:
            changes["accept_failures"] = True
        if node.op not in ("stream", "pair"):
            changes.setdefault("via", chance.choice(("module", "module", "program", "coroutine")))
        return msgspec.structs.replace(node, **changes)

    def _value(self, node: nodes.Node, _: int) -> nodes.Node:
        shape = self._chance.choice(_SHAPES)
        size = self._chance.choice((0, 3, 1_000, 100_000, 1_500_000))
        size = min(size, 20_000) if shape == "list" else size
        return self._changed(node, shape=shape, size=size)

    def _raise(self, node: nodes.Node, _: int) -> nodes.Node:
        how, times = self._chance.choice(_ERRORS), self._chance.randrange(2)
        retries = self._chance.choice((0, 0, 1))
        return self._changed(
            node, how=how, times=times, options={"retries": retries, "retry_delay": 0.05}
        )

    def _flaky(self, node: nodes.Node, _: int) -> nodes.Node:
        times = self._chance.randint(1, 3)
        how = self._chance.choice(_ERRORS)
        options: dict[str, object] = {"retries": times, "retry_delay": 0.05, "retry_factor": 1.2}
        if self._chance.random() < 0.25:
            options["retry_on"] = self._chance.choice((how, how, *_ERRORS))
            if options["retry_on"] != how:
                times = 99  # so that a loss after the first failure changes nothing
        return self._changed(node, how=how, times=times, options=options)

    def _crash(self, node: nodes.Node, _: int) -> nodes.Node:
        how = self._chance.choice(("exit", "kill", "segv"))
        fatal = self._chance.random() < 0.3
        times = 99 if fatal else 1
        options = {"retries": 1, "retry_delay": 0.05}
        if how == "kill" and fatal:
            options["max_losses"] = 1
        return self._changed(node, how=how, times=times, options=options)

    def _lock(self, node: nodes.Node, _: int) -> nodes.Node:
        return self._changed(node)

    def _ref(self, node: nodes.Node, _: int) -> nodes.Node:
        return self._changed(node, size=self._chance.choice((100, 5_000, 400_000)))

    def _stream(self, node: nodes.Node, _: int) -> nodes.Node:
        return self._changed(node, times=self._chance.choice((0, 1, 5, 40)), pause_s=0.02)

    def _pair(self, node: nodes.Node, _: int) -> nodes.Node:
        return self._value(node, 0)

    def _hang(self, node: nodes.Node, depth: int) -> nodes.Node:
        """Return a hanging call: at the top it is cancelled or has a time limit; below it has a
        time limit.
        """
        chance = self._chance
        options: dict[str, object] = {"kill_grace": 0.3, "retries": chance.choice((0, 0, 1))}
        options["retry_delay"] = 0.05
        how = chance.choice(("polite", "polite", "stubborn"))
        if depth or chance.random() < 0.35:
            options[chance.choice(("timeout", "total_timeout"))] = chance.choice((0.2, 0.6))
            inputs = () if "total_timeout" in options else node.inputs
            return self._changed(node, how=how, options=options, inputs=inputs)
        cancel = chance.choice(("started", "started", "at-once", "alone"))
        children: tuple[nodes.Node, ...] = ()
        if cancel == "alone":
            child = self._value(nodes.Node(f"{node.id}.0", "value", pause_s=0.1), 0)
            children = (msgspec.structs.replace(child, via="module", key="alone"),)
        elif cancel == "started" and chance.random() < 0.5:
            children = (nodes.Node(f"{node.id}.0", "hang", how="polite", options=options),)
        return self._changed(
            node, how=how, options=options, cancel=cancel, children=children, inputs=()
        )

    def _spawn(self, node: nodes.Node, depth: int) -> nodes.Node:
        chance = self._chance
        how = chance.choice((*tasks.WAYS, "order", "delegate", "raise"))
        via = chance.choice(("module", "module", "program", "coroutine"))
        children: list[nodes.Node] = []
        for at in range(chance.choice((1, 1, 2, 3, 5))):
            if self._left <= 0 and children:
                break
            child = self._node(f"{node.id}.{at}", children, depth=depth + 1, top=False)
            if chance.random() < 0.2:
                child = msgspec.structs.replace(child, key=f"k{at}")
            children.append(_reachable(child, via))
        return self._changed(node, how=how, via=via, children=tuple(children), shape="int")

    def _boxed(self, node: nodes.Node, depth: int) -> nodes.Node:
        found = self._spawn(node, depth)
        return msgspec.structs.replace(found, how="")

    def _grouped(self, calls: list[nodes.Node]) -> list[nodes.Node]:
        """Return a few calls in a row that one `map` can make."""
        group, found = 0, list[nodes.Node]()
        for node in calls:
            fit = node.op == "value" and not node.inputs and node.cancel == ""
            if not fit or self._chance.random() < 0.5:
                found.append(node)
                continue
            last = found[-1] if found else None
            joins = last is not None and last.group > 0 and last.phase == node.phase
            if last is None or not joins or bool(last.key) != bool(node.key):
                group += 1
            found.append(
                msgspec.structs.replace(node, group=group, via="module", options=self._options)
            )
        return found

    def _pause_s(self) -> float:
        """Return how long a victim is paused; 0: it is killed."""
        if self._chance.random() < 0.75:
            return 0.0
        return round(self._chance.uniform(0.05, 1.5), 2)

    def _faults(self) -> list[nodes.Fault]:
        chance = self._chance
        if chance.random() < 0.12:
            return []
        weights = {"slot": 4, "agent": 3, "zygote": 3, "dispatcher": 3, "driver": 4}
        if not self._durable:
            weights |= {"dispatcher": 1, "driver": 2}
        if self._served:
            weights = {"driver": 1}
        elif self._durable:
            weights["all"] = 1
        found = []
        for _ in range(chance.randint(1, 4)):
            victim = chance.choices(list(weights), list(weights.values()))[0]
            words = ("opening", "open", "submitted", "half", "closing")
            alone = victim in ("driver", "all")
            after = chance.choice(words if alone else (*words[1:], "appears", "appears"))
            short = chance.random() < 0.5
            found.append(
                nodes.Fault(
                    run=chance.choice((0, 0, 0, 1, 2)),
                    after=after,
                    delay_s=round(chance.uniform(0, 0.06 if short else 0.9), 4),
                    victim=victim,
                    pause_s=self._pause_s() if victim != "all" else 0.0,
                )
            )
        return found

    def _more_faults(self) -> list[nodes.Fault]:
        """Return more faults, at most three per victim: a home stops restarting what ends six times
        in a row.
        """
        chance = random.Random(f"storm-{self._seed}")
        victims = [*["slot", "agent", "zygote", "dispatcher", "driver"] * 3, "all"]
        if not self._durable:
            victims = [*["slot", "agent", "zygote"] * 2, "driver"]
        found = []
        for victim in chance.sample(victims, chance.randint(3, 6)):
            alone = victim in ("driver", "all")
            words = ("opening", "closing", "closing", "half") if alone else ("appears", "closing")
            stops = victim != "all" and chance.random() < 0.3
            found.append(
                nodes.Fault(
                    run=chance.choice((0, 0, 1, 1, 2, 3)),
                    after=chance.choice(words),
                    delay_s=round(chance.uniform(0, chance.choice((0.03, 0.3, 1.0))), 4),
                    victim=victim,
                    pause_s=round(chance.uniform(0.05, 2.5), 2) if stops else 0.0,
                )
            )
        return found


def _reachable(child: nodes.Node, parent_via: str) -> nodes.Node:
    """Return the child with a function that its parent can submit: only a sent function can submit
    a sent function.
    """
    if parent_via == "program":
        return child
    below = tuple(_reachable(each, "module") for each in child.children)
    via = "module" if child.via == "program" else child.via
    return msgspec.structs.replace(child, via=via, children=below)
