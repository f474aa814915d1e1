"""The ways in which a driver of a random program waits for results: all that the public API has.

Used by `driver`. Each function calls `found` once with the name and the plain outcome of every
call.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import kilnwork as kiln
from support.programs import tasks, values

Found = Callable[[str, Any], None]


def _by_result(futures: dict[str, Any], found: Found) -> None:
    for name, future in futures.items():
        found(name, tasks.outcome(future))


def _in_reverse(futures: dict[str, Any], found: Found) -> None:
    _by_result(dict(reversed(futures.items())), found)


def _by_gather(futures: dict[str, Any], found: Found) -> None:
    whole = kiln.gather(*futures.values(), return_exceptions=True).result()
    for name, value in zip(futures, whole, strict=True):
        _raise_lost(value)
        found(name, values.plain(value))


def _as_completed(futures: dict[str, Any], found: Found) -> None:
    names = {id(future): name for name, future in futures.items()}
    for future in kiln.as_completed(futures.values()):
        found(names[id(future)], tasks.outcome(future))


def _by_wait(futures: dict[str, Any], found: Found) -> None:
    left = set(futures.values())
    while left:
        _, left = kiln.wait(left, timeout=1.0, return_when=kiln.FIRST_COMPLETED)
    _by_result(futures, found)


def _by_await(futures: dict[str, Any], found: Found) -> None:
    async def one(name: str, future: Any) -> None:
        try:
            found(name, values.plain(await future))
        except Exception as error:  # noqa: BLE001  whatever it was is compared
            _raise_lost(error)
            found(name, values.plain_error(error))

    async def all_of_them() -> None:
        await asyncio.gather(*(one(*item) for item in futures.items()))

    asyncio.run(all_of_them())


def _in_threads(futures: dict[str, Any], found: Found) -> None:
    lock = threading.Lock()

    def one(name: str, future: Any) -> None:
        outcome = tasks.outcome(future)
        with lock:
            found(name, outcome)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(one, *item) for item in futures.items()]:
            done.result()


def _by_callbacks(futures: dict[str, Any], found: Found) -> None:
    called: dict[str, int] = {}
    over = threading.Semaphore(0)

    def call_back(name: str) -> None:
        called[name] = called.get(name, 0) + 1
        over.release()

    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: call_back(name))
    for _ in futures:
        over.acquire()
    if set(called.values()) - {1}:
        raise AssertionError(f"callbacks were called so often: {called}")
    _by_result(futures, found)


WAYS: dict[str, Callable[[dict[str, Any], Found], None]] = {
    "result": _by_result,
    "reverse": _in_reverse,
    "gather": _by_gather,
    "as_completed": _as_completed,
    "wait": _by_wait,
    "async": _by_await,
    "threads": _in_threads,
    "callbacks": _by_callbacks,
}


def _raise_lost(error: Any) -> None:
    if isinstance(error, kiln.DispatcherLost):
        raise error
