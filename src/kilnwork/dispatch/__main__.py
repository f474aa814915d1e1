"""`python -m kilnwork.dispatch`: the dispatcher of `kiln.start()`.

Started by `sdk.local`, which passes it a listening socket. Prints nothing; warnings go to standard
error, and a final error is its last line. Exit codes: 0 orderly shutdown; 1 failure; 2 invalid
arguments; 3 another process holds the journal.
"""

import importlib
import os
import signal
import sys

import uvloop

from kilnwork.dispatch import errors, process, settings
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.kit import errors as kit_errors
from kilnwork.kit import logs

_SWITCH_S = 0.0005
"""Seconds for which a thread keeps the interpreter lock while another waits for it; Python's
default is 5 ms. The journal's thread needs the lock between any two statements, and the event loop
seldom rests.
"""


def main() -> int:
    """Run the dispatcher and return its exit code."""
    sys.setswitchinterval(_SWITCH_S)
    # Ctrl-C is for the driver, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A durable dispatcher outlives the terminal of its driver.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logs.setup(level="warning")
    try:
        given = settings.from_arguments(sys.argv[1:], os.environ)
        process.run(given, _store(given), make_loop=uvloop.new_event_loop)
    except kit_errors.ConfigurationError as error:
        return _fail(error, 2)
    # Before KilnError, whose subclass it is.
    except errors.JournalLocked as error:
        return _fail(error, 3)
    except (kit_errors.KilnError, OSError) as error:
        return _fail(error, 1)
    return 0


def _store(given: settings.DispatcherSettings) -> port.Store:
    """Open the store that the settings name. SQLite is imported only if there is a journal."""
    if given.directory is None:
        return memory_store.MemoryStore()
    journal = importlib.import_module("kilnwork.dispatch.journal.sqlite.journal")
    made: port.Store = journal.Journal(
        given.directory / "journal.db", sync_delay_s=given.sync_delay_s
    )
    return made


def _fail(error: Exception, code: int) -> int:
    sys.stderr.write(f"{error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
