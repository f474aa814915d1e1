"""External executors: run a program that claims tasks with `spec.external` and carries them out.

    async def resize(task: executor.Task) -> dict[str, int]:
        ...
        return {"width": 640}

    executor.run("resizer", resize, slots=4)

The program may run anywhere, in any number of processes: each task is given to a process that has a
free slot. Each process holds a lease, which is renewed automatically; when the lease or the process
ends, its tasks are lost and run elsewhere. If a task is killed or must no longer run here, its
function is cancelled: it gets `asyncio.CancelledError`, and must have stopped all its work when it
returns. The function's return value is the result, as JSON or (with `outputType: bytes`) bytes; an
exception is a failure.
"""

import asyncio
import contextlib
import functools
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from kilnwork.executors import external, manager_lookup, service
from kilnwork.executors.external import ClaimedTask as Task
from kilnwork.executors.external import Failed, Run
from kilnwork.kit import clock, errors, ids
from kilnwork.kube import config

__all__ = ["ExecutorLost", "Failed", "Run", "Task", "run", "serve"]


class ExecutorLost(errors.KilnError):
    """The program cannot continue as an executor: the manager refused it, or could not be reached
    for too long.
    """


async def serve(
    name: str,
    function: Run,
    *,
    slots: int = 1,
    namespace: str | None = None,
    kubeconfig: str | os.PathLike[str] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Claim tasks of the executor `name` and call `function` for each task, until cancelled.

    `slots`: the maximum number of tasks at once. `namespace`: the namespace whose tasks are
    claimed; by default that of the kubeconfig. `ready` is called once tasks can arrive. After
    cancellation, running tasks may continue for 15 seconds. Raises ExecutorLost, or another
    KilnError if no manager can be found.
    """
    path = None if kubeconfig is None else Path(kubeconfig)
    load = functools.partial(config.load, path)
    queue = external.queue(name)
    found = await asyncio.to_thread(manager_lookup.find_manager, load, queue)
    failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def fail(text: str) -> None:
        if not failed.done():
            failed.set_result(text)

    executor = external.ExternalService(
        function,
        service.ExecutorSettings(
            queue=queue,
            name=f"{socket.gethostname()}-{os.getpid()}",
            slots=slots,
            namespace=namespace or load().namespace,
            pod_uid=os.environ.get("KILN_POD_UID", ""),
        ),
        found,
        time=clock.SystemClock(),
        entropy=ids.system_entropy(),
        on_failure=fail,
    )
    try:
        await executor.start(say=_ignore)
        ready()
        raise ExecutorLost(await failed)
    finally:
        await executor.stop(say=_ignore)


def run(
    name: str,
    function: Run,
    *,
    slots: int = 1,
    namespace: str | None = None,
    kubeconfig: str | os.PathLike[str] | None = None,
) -> None:
    """Run `serve` until SIGINT or SIGTERM, and print a line when tasks can arrive.

    For a program that does nothing else: it starts an event loop and handles these signals.
    """

    load = functools.partial(config.load, None if kubeconfig is None else Path(kubeconfig))

    async def main() -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: this is not None and this.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            served = namespace or load().namespace
            if await asyncio.to_thread(manager_lookup.is_namespace_missing, load, served):
                print(f"there is no namespace {served}: no tasks come before it exists", flush=True)
            await serve(
                name,
                function,
                slots=slots,
                namespace=namespace,
                kubeconfig=kubeconfig,
                ready=lambda: print(f"executor {name} is ready, {slots} slots", flush=True),
            )

    asyncio.run(main())


def _ignore(text: str) -> None:
    """Ignore the text about the outcome of a task: there is no client to report it to."""
