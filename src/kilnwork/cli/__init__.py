"""Command line `kiln` (also `kubectl kiln`), and the wiring of `kiln up` and `kiln manager`.

`main` holds the table of commands. The module of a command is imported only when it is called, so
that `kiln --help` and the client commands start in milliseconds. `wiring` is the composition root:
the only place that connects controlplane, dispatch, controllers and server. `session` sends the
requests of one command to a server; `exits` defines the exit codes and `errors` maps errors to
them, except that `kiln run --watch` exits with the code of the task's command. No other package
imports this one.
"""

import signal
import sys

if (
    sys.argv[0].rpartition("/")[2] in ("kiln", "kubectl-kiln", "-m")
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    # Ctrl-C while modules are loaded ends the process without Python's traceback; see `main`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
