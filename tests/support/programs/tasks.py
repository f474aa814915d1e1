"""Task functions of random programs: one interpreter of `nodes.Node`, reached in several ways.

Imported by `driver` and, by name, by the slots. Functions that are sent with the program are
defined in `driver`, which passes `perform` the functions that submit them.
"""

import asyncio
import concurrent.futures
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

import kilnwork as kiln
from support.programs import effects, nodes, values

RELEASE = "release"
"""A file of this name beside the effects ends every call that hangs."""

_ERRORS = {"Boom": values.Boom, "ValueError": ValueError, "KeyError": KeyError, "OSError": OSError}
_SLICE_S = 0.02
_dumped: set[int] = set()

Functions = Mapping[str, Any]


def perform(document: dict[str, Any], inputs: tuple[Any, ...], functions: Functions) -> Any:
    """Carry out a node inside a task."""
    node = _begun(document)
    match node.op:
        case "spawn" | "boxed":
            return _spawn(node, inputs, functions)
        case "hang":
            return _hang(node, functions)
        case _:
            return _leaf(node, inputs)


def _begun(document: dict[str, Any]) -> nodes.Node:
    node = msgspec.convert(document, nodes.Node)
    dump_on_signal()
    here = kiln.context()
    effects.note("start", node.id, here.task_id, here.run, here.attempt)
    time.sleep(node.pause_s)
    return node


def dump_on_signal() -> None:
    """Make SIGUSR2 write the stacks of all threads beside the effects."""
    if os.getpid() not in _dumped:
        _dumped.add(os.getpid())
        path = directory() / f"stacks-{os.getpid()}.txt"
        faulthandler.register(signal.SIGUSR2, file=path.open("w"), all_threads=True)


def directory() -> Path:
    return Path(os.environ[effects.VARIABLE]).parent


def _leaf(node: nodes.Node, inputs: tuple[Any, ...]) -> Any:
    match node.op:
        case "raise":
            error = values.raised(node.how, node.id)
            if node.times:
                raise error from LookupError(f"cause of {node.id}")
            raise error
        case "flaky":
            if effects.count("fail", node.id) < node.times:
                effects.note("fail", node.id)
                raise values.raised(node.how, node.id)
        case "crash":
            if effects.count("crash", node.id) < node.times:
                effects.note("crash", node.id)
                _crash(node.how)
        case "lock":
            return threading.Lock()
        case "ref":
            return kiln.put(values.content(node.id, node.size))
        case "pair":
            number = values.combine(node.id, [values.plain(each) for each in inputs])
            return (values.shaped(node.shape, number, node.size), number)
    number = values.combine(node.id, [values.plain(each) for each in inputs])
    return values.shaped(node.shape, number, node.size)


def _crash(how: str) -> None:
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSEGV)
    time.sleep(60)


def _hang(node: nodes.Node, functions: Functions) -> str:
    """Hang until cancelled, timed out, or the run has ended; a stubborn one ignores the cancel."""
    for child in node.children:
        future = submit(child, {}, functions)
        effects.note("spawned", child.id, future.id)
    effects.note("hang", node.id)
    while not (directory() / RELEASE).exists():
        with contextlib.suppress(Exception if node.how == "stubborn" else ZeroDivisionError):
            time.sleep(_SLICE_S)
    return "released"


def submit(node: nodes.Node, known: Mapping[str, Any], functions: Functions) -> Any:
    """Submit a call, from the driver or a task. `known`: futures by the id of a call."""
    function = functions[node.via if node.op not in ("stream", "pair") else node.op]
    options = dict(node.options)
    if "retry_on" in options:
        options["retry_on"] = _ERRORS[options["retry_on"]]
    if node.accept_failures:
        options["accept_failures"] = True
    if node.key:
        options["key"] = node.key
    if options:
        function = function.options(**options)
    arguments = [argument(each, known) for each in node.inputs]
    return function.submit(document_of(node), *arguments)


def document_of(node: nodes.Node) -> dict[str, Any]:
    """Return a call as JSON, so that equal arguments are seen to be equal."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(node))
    return document


def argument(given: nodes.Input, known: Mapping[str, Any]) -> Any:
    """Return the argument to pass: a future, a reference of `kiln.put`, or a value."""
    if given.ref:
        future = known[given.ref]
        if given.item >= 0:
            future = future[given.item]
        return {"deep": [future]} if given.nested else future
    if given.put_bytes:
        return kiln.put(values.content("put", given.put_bytes))
    if given.bytes:
        return values.content("plain", given.bytes)
    return given.literal


def _spawn(node: nodes.Node, inputs: tuple[Any, ...], functions: Functions) -> Any:
    known: dict[str, Any] = {}
    for child in node.children:
        known[child.id] = submit(child, known, functions)
    if node.op == "boxed":
        return {"box": [known[child.id] for child in node.children]}
    futures = list(known.values())
    if node.how == "delegate":
        return futures[-1]
    if node.how == "raise":
        gathered = [values.plain(future.result()) for future in futures]
    else:
        gathered = _WAYS[node.how](futures)
    number = values.combine(node.id, [[values.plain(each) for each in inputs], gathered])
    return values.shaped(node.shape, number, node.size)


def outcome(future: Any, timeout_s: float | None = None) -> Any:
    """Return the value or error of a future, in plain form."""
    try:
        return values.plain(future.result(timeout=timeout_s))
    except kiln.Cancelled as error:
        if error.task in (None, _own_id()):
            raise  # this task itself is cancelled
        return values.plain_error(error)
    except kiln.DispatcherLost:
        raise
    except Exception as error:  # noqa: BLE001  whatever it was is compared
        return values.plain_error(error)


def _own_id() -> str | None:
    try:
        return kiln.context().task_id
    except kiln.NotInTask:
        return None


def _in_order(futures: list[Any]) -> list[Any]:
    return [outcome(future) for future in futures]


def _gathered(futures: list[Any]) -> list[Any]:
    whole = kiln.gather(*futures, return_exceptions=True).result()
    return [values.plain(each) for each in whole]


def _as_completed(futures: list[Any]) -> list[Any]:
    for _ in kiln.as_completed(futures):
        pass
    return _in_order(futures)


def _waited(futures: list[Any]) -> list[Any]:
    left = set(futures)
    while left:
        _, left = kiln.wait(left, return_when=kiln.FIRST_COMPLETED)
    return _in_order(futures)


def _with_limit(futures: list[Any]) -> list[Any]:
    """Wait with limits that expire, then with one that is long enough."""
    for future in futures:
        with contextlib.suppress(TimeoutError):
            future.exception(timeout=0.01)
    kiln.wait(futures, timeout=0.02)
    return [outcome(future, 300.0) for future in futures]


def _in_threads(futures: list[Any]) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor(max(1, len(futures))) as pool:
        return list(pool.map(outcome_in_thread, futures))


def outcome_in_thread(future: Any) -> Any:
    """Return `outcome` from a thread of a task, where a cancel raises nothing."""
    error = future.exception()
    return values.plain_error(error) if error is not None else values.plain(future.result())


def _polled(futures: list[Any]) -> list[Any]:
    """Wait in many short waits: `done()` alone would keep the slot that the children need."""
    while not all(future.done() for future in futures):
        kiln.wait(futures, timeout=0.01)
    return _in_order(futures)


_WAYS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "order": _in_order,
    "gather": _gathered,
    "as_completed": _as_completed,
    "wait": _waited,
    "limit": _with_limit,
    "threads": _in_threads,
    "poll": _polled,
}
WAYS = tuple(_WAYS)
"""How a parent collects its children; a coroutine has one of its own."""


@kiln.task
def in_module(document: dict[str, Any], *inputs: Any) -> Any:
    return perform(document, inputs, FUNCTIONS)


@kiln.task
async def in_coroutine(document: dict[str, Any], *inputs: Any) -> Any:
    """Perform a call in an event loop of its own."""
    node = _begun(document)
    await asyncio.sleep(0)
    if node.op != "spawn" or node.how in ("delegate", "raise"):
        if node.op in ("spawn", "boxed"):
            return _spawn(node, inputs, FUNCTIONS)
        return _hang(node, FUNCTIONS) if node.op == "hang" else _leaf(node, inputs)
    known: dict[str, Any] = {}
    for child in node.children:
        known[child.id] = submit(child, known, FUNCTIONS)
    gathered = await asyncio.gather(*(_awaited(future) for future in known.values()))
    number = values.combine(node.id, [[values.plain(each) for each in inputs], list(gathered)])
    return values.shaped(node.shape, number, node.size)


async def _awaited(future: Any) -> Any:
    try:
        return values.plain(await future)
    except Exception as error:  # noqa: BLE001  whatever it was is compared
        return values.plain_error(error)


@kiln.task
def stream(document: dict[str, Any], *inputs: Any) -> Iterator[int]:
    """Yield the same values in every attempt."""
    node = _begun(document)
    number = values.combine(node.id, [values.plain(each) for each in inputs])
    for at in range(node.times):
        time.sleep(node.pause_s / 4)
        yield number + at


@kiln.task(returns=2)
def pair(document: dict[str, Any], *inputs: Any) -> tuple[Any, Any]:
    """Return two results for two futures."""
    first, second = _leaf(_begun(document), inputs)
    return first, second


FUNCTIONS: dict[str, Any] = {
    "module": in_module,
    "coroutine": in_coroutine,
    "stream": stream,
    "pair": pair,
}
