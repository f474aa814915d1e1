"""`kiln.start()`: starts a dispatcher and a worker on this machine; it needs no server.

Public as `kilnwork.start`. The composition root of sessions without a server (those of servers are
in `cli.wiring`): it starts `python -m kilnwork.dispatch` and `python -m kilnwork.worker`, and opens
a session with them.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import (
    driver_session,
    durable_home,
    errors,
    home_supervisor,
    session,
    volatile_home,
)

START_S = 30.0
"""How many seconds dispatcher and worker may take to start, on a slow or busy machine too."""

MAX_SLOTS = 1000
"""Maximum number of slots, each of which is a process: a larger number is a mistake, since machines
have fewer cores."""

_TRIES = 5
"""Number of tries to connect while each dispatcher that is found is about to end."""


def start(  # noqa: PLR0913 - its options
    folder: str | os.PathLike[str] | None = None,
    *,
    slots: int | None = None,
    working_dir: str | os.PathLike[str] | None = None,
    secrets: str | os.PathLike[str] | None = None,
    retry_failed: bool = False,
    reconnect_timeout: float = driver_session.RECONNECT_S,
    close_timeout: float = driver_session.CLOSE_S,
) -> driver_session.Driver:
    """Start a dispatcher and a worker on this machine, and open a session with them.

    ```python
    with kiln.start() as session:
        print(count.submit("a.txt").result())
    ```

    The session is the current session until it is closed. `folder`: the directory of the journal,
    created if it does not exist. With a directory, accepted tasks survive any crash: running tasks
    finish after the driver has ended, and a later `start(directory)` finds them and their results.
    Without a directory the journal is in memory, large values are in a temporary directory, and
    leaving the `with` block ends all running tasks.

    `slots`: the maximum number of tasks that run at once, up to 1000; by default the number of
    cores that this process may use. It applies when the worker is started, not to a worker of the
    directory that is already running. `working_dir`: the directory that task functions run in and
    are imported from; by default the current directory. `secrets`: a directory in which the file
    NAME/KEY holds the value of a `kiln.SecretKey`, as Kubernetes mounts Secrets; by default there
    are no Secrets. It applies when the dispatcher is started.

    `retry_failed`: run a call again if its `key` names a call that failed before this session, with
    its current arguments and function; children that succeeded are reused. By default a failed call
    with a key stays failed. `reconnect_timeout`: seconds without a dispatcher after which waiting
    fails with DispatcherLost. `close_timeout`: seconds without progress that `close` waits for the
    dispatcher to accept the submitted calls.

    Raises ConfigurationError for an invalid option: a directory of `kiln up`, a directory whose
    journal is held by another process (the error names it), a path that is not a directory, an
    invalid number of slots. Also raises it inside a task, which uses the session that it runs in.
    """
    _refuse_inside_a_task()
    wanted = home_supervisor.HomeOptions(
        slots=_slots(slots),
        workdir=_directory("working_dir", working_dir or "."),
        secrets=None if secrets is None else _directory("secrets", secrets),
    )
    timeouts = driver_session.Timeouts.checked(reconnect_timeout, close_timeout)
    try:
        if folder is None:
            return _volatile(wanted, timeouts)
        opened = _durable(Path(folder), wanted, timeouts)
        opened.retry_failed = retry_failed
        return opened
    except OSError as error:
        if isinstance(error, kit_errors.KilnError):
            raise
        where = f" ({error.filename})" if error.filename else ""
        raise kit_errors.ConfigurationError(
            f"a session cannot be started here: {error.strerror or error}{where}"
        ) from error


def _volatile(
    wanted: home_supervisor.HomeOptions, timeouts: driver_session.Timeouts
) -> driver_session.Driver:
    made = volatile_home.Volatile(wanted)
    return _opened(made, made.start, timeouts, durable=False)


def _durable(
    directory: Path, wanted: home_supervisor.HomeOptions, timeouts: driver_session.Timeouts
) -> driver_session.Driver:
    for _ in range(_TRIES - 1):
        try:
            return _in_directory(directory, wanted, timeouts)
        except channel_errors.LinkRefused as error:
            if error.reason != messages.LEAVING:  # else retry: that dispatcher was about to end
                raise
    return _in_directory(directory, wanted, timeouts)


def _in_directory(
    directory: Path, wanted: home_supervisor.HomeOptions, timeouts: driver_session.Timeouts
) -> driver_session.Driver:
    made = durable_home.Durable(directory, wanted)
    return _opened(made, lambda: made.start(patience_s=START_S), timeouts, durable=True)


def _opened(
    made: home_supervisor.Home,
    begin: Callable[[], None],
    timeouts: driver_session.Timeouts,
    *,
    durable: bool,
) -> driver_session.Driver:
    opened = driver_session.Driver(
        connect=made.connect,
        credential=made.credential,
        namespace=home_supervisor.NAMESPACE,
        cluster=home_supervisor.CLUSTER,
        on_close=made.close,
        durable=durable,
        patience_s=timeouts.reconnect_s,
        close_timeout=timeouts.close_s,
    )
    opened.one_cluster = True
    opened.has_secrets = made.has_secrets
    made.on_lost = opened.lost
    try:
        begin()
        opened.open(timeout_s=START_S)
    except BaseException:
        opened.close()
        raise
    return opened


def _refuse_inside_a_task() -> None:
    """Raise ConfigurationError in the slots of a worker, where no home may be started.

    A module that starts a session when it is imported would otherwise start one in each slot.
    """
    with contextlib.suppress(errors.NoSession):
        if session.current().in_slot:
            raise kit_errors.ConfigurationError(
                "kiln.start() was called inside a task, or while a worker imported this module: "
                'put it below `if __name__ == "__main__":`. Tasks submit to the session that they '
                "run in."
            )


def _slots(wanted: int | None) -> int:
    if wanted is None:
        return min(len(os.sched_getaffinity(0)), MAX_SLOTS)
    if type(wanted) is not int or not 1 <= wanted <= MAX_SLOTS:
        raise kit_errors.ConfigurationError(f"slots={wanted!r}: a whole number, 1 to {MAX_SLOTS}")
    return wanted


def _directory(option: str, wanted: str | os.PathLike[str]) -> Path:
    try:
        directory = Path(wanted).expanduser().absolute()
    except OSError as error:
        raise kit_errors.ConfigurationError("the current directory is gone: cd to one") from error
    if not directory.is_dir():
        raise kit_errors.ConfigurationError(f"{option}={str(directory)!r} is no directory")
    return directory
