"""The reaper: which children it hears of."""

from support import other_process


def test_a_child_that_ended_before_the_start_is_reported() -> None:
    """Its SIGCHLD came to nobody. In a process of its own: the reaper waits for every child."""
    program = (
        "import asyncio, os, time\n"
        "from kilnwork.kit import processes\n"
        "from kilnwork.worker import reaper\n"
        "pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], {})\n"
        "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
        "async def main():\n"
        "    waiter = reaper.Reaper()\n"
        "    ended = waiter.watch(pid)\n"
        "    waiter.start()\n"
        "    async with asyncio.timeout(20):\n"
        "        print((await ended).code)\n"
        "    waiter.stop()\n"
        "asyncio.run(main())\n"
    )
    assert other_process.run(program) == "7"
