"""The reaper: which children it hears of, and what they have used."""

from support import python_subprocess


def test_child_that_exited_before_the_start_is_reported() -> None:
    """Its SIGCHLD was not handled. In a process of its own: the reaper waits for every child."""
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
    assert python_subprocess.run(program) == "7"


def test_peak_of_a_child_excludes_that_of_its_parent() -> None:
    """The kernel has the peak of a process that was much larger for that of the one it started."""
    worker = (
        "import asyncio, os, sys\n"
        "from kilnwork.worker import reaper\n"
        "code = 'held = bytes(1) * (100 << 20)'\n"
        "async def main():\n"
        "    waiter = reaper.Reaper()\n"
        "    waiter.start()\n"
        "    pid = os.posix_spawn(sys.executable, [sys.executable, '-c', code], os.environ)\n"
        "    async with asyncio.timeout(40):\n"
        "        print((await waiter.watch(pid)).usage.peak_bytes)\n"
        "    waiter.stop()\n"
        "asyncio.run(main())\n"
    )
    large = (
        "import subprocess, sys\n"
        "held = bytearray(b'x') * (300 << 20)\n"
        "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)\n"
    )
    assert 100 << 20 < int(python_subprocess.run(large, worker)) < 200 << 20
