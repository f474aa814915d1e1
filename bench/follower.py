"""A process that follows the Tasks of a cluster with the types of the manager; see `cluster.py`.

`follower.py KUBECONFIG COUNT` prints its usage, reads a line, follows until its cache has so many
Tasks, prints its usage again, and stays until its input ends.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import machine

from kilnwork.api import kinds, task
from kilnwork.kube import cache, client, config, reflector


def used() -> str:
    """Return CPU seconds and PSS so far."""
    times = os.times()
    return json.dumps(
        {"cpu": times.user + times.system, "pss": machine.memory_mib([os.getpid()])[1]}
    )


async def main(kubeconfig: Path, count: int) -> None:
    """Follow until the input ends."""
    known: cache.Cache[task.Task] = cache.Cache()
    async with client.Client(config.load(kubeconfig)) as kube:
        print(used(), flush=True)
        sys.stdin.readline()
        follower = reflector.Reflector(kube, kinds.TASKS, task.Task, known)
        running = asyncio.create_task(follower.run())
        await follower.synced.wait()
        while len(known) < count:
            await asyncio.sleep(0.01)
        print(used(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        running.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
