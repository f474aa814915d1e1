"""The command line `kiln` (also `kubectl kiln`), and the wiring of `kiln up` and
`kiln manager`.

`main` holds one table of commands; a command's module is loaded only when it is called, so that
`kiln --help` and every client command start in milliseconds. `wiring` is the composition root: the
only place that puts controlplane, dispatch, controllers and server together. `session` is one
command's conversation with a server; `exits` has the exit codes, `errors` gives each error one, and
`commands.run` ends with that of the task's command. Nothing imports this room.
"""

import signal
import sys

if (
    sys.argv[0].rpartition("/")[2] in ("kiln", "kubectl-kiln", "-m")
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    # Ctrl-C while modules are loaded ends the process without Python's traceback; see `main`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
