"""`python -m kilnwork.worker`: runs one worker until it is asked to stop.

Started by the Pods of a TaskCluster and by `kiln.start()`. It forks the zygote first and imports
the agent's modules only afterwards: slots must not inherit asyncio, and no thread may exist before
a fork. Modules that both processes need are imported before the fork, so that their memory is
shared; the others are imported by name. An agent whose dispatcher is on the same machine does not
import `ssl`, which saves each worker 1.5 MiB. Exit codes: 0 asked to stop, or the dispatcher stops
and no other follows; 1 no dispatcher for a minute, or a bug; 2 invalid environment; 3 refused by
the dispatcher; 4 the zygote cannot be started.
"""

import gc
import importlib
import logging
import os
import sys
import traceback
from types import ModuleType
from typing import cast

from kilnwork.kit import errors, logs, processes
from kilnwork.worker import settings, zygote_link

log = logging.getLogger(__name__)

SHARED = (
    "fcntl", "heapq", "kilnwork.api.reasons", "kilnwork.api.env_sources",
    "kilnwork.api.sync_set_env", "kilnwork.channel.frames", "kilnwork.kit.backoff",
    "kilnwork.kit.digests", "kilnwork.worker.line_buffer", "kilnwork.worker.slot_page", "mmap",
    "resource", "shutil", "termios",
)  # fmt: skip
"""Modules that both agent and zygote import; with them come the modules that these import."""


def main() -> int:
    """Run the worker; return its exit code."""
    logs.setup()
    settings.name_directory(os.environ)
    try:
        given = settings.from_environment(os.environ)
    except errors.ConfigurationError as error:
        log.error("worker cannot start", extra={"why": str(error)})  # noqa: TRY400
        return 2
    share()
    own_end, zygote_end = zygote_link.make_pair()
    errors_file = zygote_link.open_errors_file()
    pid = processes.fork()
    if pid == 0:
        code = 1
        try:
            processes.rename(zygote_link.ZYGOTE)
            # Without this, the zygote would never see the end of the link when the agent dies.
            own_end.close()
            stderr = os.dup(2)
            os.dup2(errors_file, 2)
            os.close(errors_file)
            importlib.import_module("kilnwork.worker.zygote").run(zygote_end, given, stderr=stderr)
            code = 0
        except BaseException:  # noqa: BLE001  whatever it was, the agent is another process
            traceback.print_exc()
        finally:
            # No cleanup: exit handlers and buffered output belong to the agent.
            os._exit(code)
    # Without this, the agent would never see the end of the link when the zygote dies.
    zygote_end.close()
    if given.remote is None:
        # None makes `import ssl` fail. asyncio works without `ssl`, because some Pythons are built
        # without.
        sys.modules["ssl"] = cast(ModuleType, None)
    serving = importlib.import_module("kilnwork.worker.agent_process")
    return int(serving.serve(given, zygote_link.ZygoteHandle(pid, own_end, errors_file)))


def share() -> None:
    """Import the modules that agent and slots share, and keep the garbage collector from writing to
    the memory pages of their objects.
    """
    for name in SHARED:
        importlib.import_module(name)
    # A collection writes to the header of every object that it visits, but visits no frozen ones.
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
