"""A random program as data: calls, their behaviour, and when a driver collects them.

Made by `generator`, evaluated by `oracle`, run by `driver` and `tasks`. A program is written as
JSON into the directory of its run, so that a restarted driver runs the same one.
"""

from typing import Any, Literal

import msgspec

Operation = Literal[
    "value", "raise", "flaky", "crash", "spawn", "hang", "stream", "pair", "lock", "boxed", "ref"
]


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of a call.

    `ref`: id of an earlier call whose future is passed; `item`: of a pair, which of its futures.
    `nested`: the future is inside a list in a dict. `put_bytes`: size of a value that is passed
    through `kiln.put`; `bytes`: size of one that is passed directly. Otherwise `literal`.
    """

    ref: str = ""
    item: int = -1
    nested: bool = False
    put_bytes: int = 0
    bytes: int = 0
    literal: Any = None


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call.

    `shape`: type of the value that it returns, of `size` bytes where that matters. `how`: what it
    raises, how it crashes, how it collects its children, or how it hangs. `via`: which task
    function runs it: one of an importable module, of the program itself, or a coroutine function.
    `times`: how often it fails first, or how many values it yields. `options`: of the call.
    `cancel`: when the driver cancels it: `started`, `at-once`, `alone` (not its children), or
    `racing` with its end. `phase`: which run of the driver submits it. `group`: calls with the same
    number, not 0, are submitted by one `map`.
    """

    id: str
    op: Operation
    shape: str = "int"
    size: int = 0
    pause_s: float = 0.0
    how: str = ""
    via: str = "module"
    times: int = 0
    inputs: tuple[Input, ...] = ()
    accept_failures: bool = False
    children: tuple["Node", ...] = ()
    options: dict[str, Any] = {}
    key: str = ""
    cancel: str = ""
    phase: int = 0
    group: int = 0


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault.

    `run`: in which run of the driver, from 0. `after`: the word that the driver prints, or
    `appears` for the first moment that the victim exists; `delay_s` later it is killed, or stopped
    for `pause_s`.
    """

    run: int
    after: str
    delay_s: float
    victim: str
    pause_s: float = 0.0


class Program(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program of one seed. `collect`: how the driver of each phase waits for its results.

    `guest`: a second driver runs the same program in the same directory at the same time.
    """

    seed: int
    durable: bool
    slots: int
    phases: int
    collect: tuple[str, ...]
    calls: tuple[Node, ...]
    guest: bool = False
    faults: tuple[Fault, ...] = ()


def walk(nodes: tuple[Node, ...]) -> list[Node]:
    found: list[Node] = []
    for node in nodes:
        found += [node, *walk(node.children)]
    return found
