"""Options of a task function: names, allowed values, and the task spec that they make.

Used by `sdk.task` for `@kiln.task(…)` and `.options(…)`. Values are checked where they are written,
not where the task would fail. Not the options of a session, nor those of `map`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import msgspec

from kilnwork.api import task as api_task
from kilnwork.sdk import errors

KILL_GRACE_S = 5.0
"""Default time in seconds between `Cancelled` and SIGKILL: shorter than for commands (30 s), which
need time to handle SIGTERM."""

Retryable = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A reference to one key of a Secret, as the value of an environment variable of a task
    function.

    ```python
    @kiln.task(env={"DB_PASSWORD": kiln.SecretKey("db", "password")})
    def load(table: str) -> int: ...
    ```

    The value is read when an attempt starts: from a Secret of the task's namespace, or under
    `kiln.start(secrets=DIRECTORY)` from the file DIRECTORY/NAME/KEY. Only the names are stored.
    `optional`: omit the variable if the Secret or key does not exist, instead of failing.
    """

    name: str
    key: str
    optional: bool = False

    def source(self) -> api_task.EnvSource:
        """Return the reference as the source of a variable in the task spec."""
        ref = api_task.KeyRef(name=self.name, key=self.key, optional=self.optional)
        return api_task.EnvSource(secret_key_ref=ref)


class Changes(TypedDict, total=False):
    """The options of `@kiln.task(…)`; `.options(…)` takes `key` too. Times are in seconds.

    `retries`: the number of further attempts after a failure, 0 (the default) to 999. `retry_on`:
    an exception class or a tuple of classes; after other exceptions the task is not tried again; by
    default it is tried again after any exception. After a timeout or the death of its process the
    task is tried again whatever `retry_on` says, since no exception was raised. `retry_delay`: the
    delay before the second attempt (default: 1); each further delay is `retry_factor` times as long
    (default: 2), at most `retry_max_delay` (default: 60). `max_losses`: how often its worker may be
    lost, which does not count as a failure (default: 3).

    `timeout`: the time limit of one attempt. `total_timeout`: the time limit of all attempts,
    waiting included. `pending_timeout`: the time limit until the first start. There are no time
    limits by default. `kill_grace`: the time between `kiln.Cancelled` inside the task and the end
    of its process (default: 5).

    `priority`: tasks with a higher priority start first (default: 0). `name`: a name that is shown
    to people and need not be unique. `cluster`: the TaskCluster that runs the task. `pod`: run the
    task in a Pod of its own instead, made from this template (`metadata` and `spec` as in
    Kubernetes; both optional). `accept_failures`: run the task even if an input failed; the
    function gets the exception in place of the value. `env`: variables in `os.environ` of the task,
    each a string, or a `kiln.SecretKey` whose value is read when an attempt starts. `cache`: use an
    earlier result of the same function with the same arguments if it is not older than this:
    seconds, or a text such as `"7d"`, `"12h"`, `"30m"`, `"45s"`; see `sdk.cache_keys`.
    """

    retries: int
    retry_on: Retryable | None
    retry_delay: float
    retry_factor: float
    retry_max_delay: float
    max_losses: int
    timeout: float | None
    total_timeout: float | None
    pending_timeout: float | None
    kill_grace: float
    priority: int
    name: str | None
    cluster: str | None
    pod: Mapping[str, Any] | None
    accept_failures: bool
    env: Mapping[str, "str | SecretKey"] | None
    cache: float | str | None


class CallChanges(Changes, total=False):
    """The options of `.options(…)`: those of `Changes`, and `key`, a name for one call."""

    key: str | None


class TemplateChanges(TypedDict, total=False):
    """The options of templates (`kiln.manifest`, `workflow`, `http`, `function` and `external`).

    They have the same meaning as in `CallChanges`, and `kill_grace` is 30 s by default. `cluster`:
    the TaskCluster on whose worker a call whose arguments contain futures is submitted, once the
    futures have values.
    """

    retries: int
    retry_delay: float
    retry_factor: float
    retry_max_delay: float
    max_losses: int
    timeout: float | None
    total_timeout: float | None
    pending_timeout: float | None
    kill_grace: float
    priority: int
    name: str | None
    cluster: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """All checked options of a task function; see `Changes`. `returns`: see `decorator.task`."""

    retries: int = 0
    retry_on: tuple[type[BaseException], ...] | None = None
    retry_delay: float = 1.0
    retry_factor: float = 2.0
    retry_max_delay: float = 60.0
    max_losses: int = 3
    timeout: float | None = None
    total_timeout: float | None = None
    pending_timeout: float | None = None
    kill_grace: float = KILL_GRACE_S
    priority: int = 0
    cluster: str | None = None
    pod: api_task.PodTemplate | None = None
    accept_failures: bool = False
    env: tuple[api_task.EnvVar, ...] = ()
    cache: float | None = None
    returns: int = 1


PER_CALL = frozenset({"name", "key"})
"""Options that are not part of the spec: calls that differ only in them share one template."""


def changed(before: Options, changes: Mapping[str, Any], *, of: str) -> Options:
    """Return the options `before` with these changes. Raises BadOption.

    `of`: the name of the function, for error messages.
    """
    return replace(before, **{name: checked(name, value, of=of) for name, value in changes.items()})


def checked(name: str, value: Any, *, of: str) -> Any:
    """Check the value of one option and return it in the form in which `Options` stores it.

    Raises BadOption with the field, the value and a remedy.
    """
    check = _CHECKS.get(name)
    if check is None:
        import difflib  # noqa: PLC0415 - 140 KiB, for a user who misspells an option

        near = difflib.get_close_matches(name, _CHECKS)
        known = f"did you mean {' or '.join(near)}?" if near else f"use {', '.join(_CHECKS)}"
        raise errors.BadOption(f"{of}: no option is called {name!r}: {known}")
    try:
        return check(value)
    except _Unfit as unfit:
        raise errors.BadOption(f"{of}: {name}={value!r}: must be {unfit}") from None


def spec(
    options: Options, *, function: str, code: str | None, environment: str | None, stream: bool
) -> api_task.TaskSpec:
    """Return the task spec that all calls with these options share.

    `code`, `environment`: digests of blobs as text; None: workers import the function; nothing is
    shipped with it.
    """
    call = api_task.Call(
        function=function,
        code=code,
        environment=environment,
        returns=options.returns,
        stream=stream,
        accept_failures=options.accept_failures,
    )
    return spec_of(options, call=call, pod=options.pod, env=options.env)


def spec_of(options: Options, **runs: Any) -> api_task.TaskSpec:
    """Return the task spec that all tasks with these options share.

    `runs`: the fields of the spec for the function, program or object that runs.
    """
    return api_task.TaskSpec(
        **runs,
        cluster_name=options.cluster or "default",
        priority=options.priority,
        retry=api_task.Retry(
            max_attempts=options.retries + 1,
            max_losses=options.max_losses,
            delay_seconds=options.retry_delay,
            factor=options.retry_factor,
            max_delay_seconds=options.retry_max_delay,
        ),
        timeouts=api_task.Timeouts(
            pending_seconds=options.pending_timeout,
            running_seconds=options.timeout,
            total_seconds=options.total_timeout,
            kill_grace_seconds=options.kill_grace,
        ),
    )


class _Unfit(Exception):
    """The value of an option is invalid; the message says which values are valid."""


def _integer(low: int, high: int, also: str = "") -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _Unfit(f"an integer from {low} to {high}{also}")
        return value

    return check


def _number(low: float, high: float, what: str, *, above: bool = False) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not (low < value if above else low <= value) or not value <= high:
            least = f"more than {low:g}" if above else f"at least {low:g}"
            raise _Unfit(f"{what}, {least} and at most {high:g}")
        return float(value)

    return check


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def either(value: Any) -> Any:
        if value is None:
            return None
        try:
            return check(value)
        except _Unfit as unfit:
            raise _Unfit(f"{unfit}, or None") from None

    return either


def _text(value: Any) -> str:
    if type(value) is not str or not 1 <= len(value) <= 253:
        raise _Unfit("a string of 1 to 253 characters")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unfit("True or False")
    return value


def _classes(value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in classes):
        raise _Unfit("an exception class or a tuple of them")
    return tuple(classes)


def _pod(value: Any) -> api_task.PodTemplate:
    """Return a copy of a Pod template, so that the task does not see later changes of the
    original.
    """
    from kilnwork.api import pod_template_validation  # noqa: PLC0415 - for a task that names a Pod

    wanted = "a Pod template, such as {'spec': {'containers': [{'image': …}]}}"
    if isinstance(value, api_task.PodTemplate):
        return value
    if not isinstance(value, Mapping):
        raise _Unfit(wanted)
    try:
        encoded = msgspec.json.encode({"spec": {}, **value})
        template = msgspec.json.decode(encoded, type=api_task.PodTemplate)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise _Unfit(f"{wanted}: {error}") from None
    problems = pod_template_validation.problems(template, runs_call=True)
    if text := "; ".join(f"{field.removeprefix('pod.')} {why}" for field, why in problems):
        raise _Unfit(f"{wanted}: {text}")
    return template


def _env(value: Any) -> tuple[api_task.EnvVar, ...]:
    """Return a copy of the variables, as `_pod` does for a Pod template."""
    from kilnwork.api import env_validation  # noqa: PLC0415 - for a task that has variables

    if value is None:
        return ()
    if isinstance(value, tuple):
        return value
    wanted = "a dictionary of strings and kiln.SecretKey by name of variable"
    if not isinstance(value, Mapping):
        raise _Unfit(wanted)
    made: list[api_task.EnvVar] = []
    for name, given in value.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise _Unfit(f"{wanted}: {name!r} is no name of a variable")
        if isinstance(given, SecretKey):
            made.append(api_task.EnvVar(name=name, value_from=given.source()))
        elif isinstance(given, str):
            made.append(api_task.EnvVar(name=name, value=given))
        else:
            raise _Unfit(f"{wanted}: {name} is {type(given).__name__}")
    problems = (*env_validation.problems(made), *env_validation.call_problems(made))
    if text := "; ".join(f"{field.removeprefix('spec.')} {why}" for field, why in problems):
        raise _Unfit(f"{wanted}: {text}")
    return tuple(made)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _age(value: Any) -> float:
    """Return a maximum age in seconds, from a number of seconds or a text with a unit."""
    wanted = f"seconds, more than 0 and at most {api_task.MAX_S}, or a text such as '7d' or '12h'"
    if isinstance(value, str):
        number, unit = value[:-1], _UNITS.get(value[-1:])
        if unit is None or not number.isascii() or not number.isdecimal():
            raise _Unfit(wanted)
        value = int(number) * unit
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 < value <= api_task.MAX_S:
        raise _Unfit(wanted)
    return float(value)


_seconds = _or_none(_number(0, api_task.MAX_S, "seconds", above=True))
_delay = _number(0, 86_400, "seconds")

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "retries": _integer(0, 999, ": attempts after the first one"),
    "retry_on": _or_none(_classes),
    "retry_delay": _delay,
    "retry_factor": _number(1, 100, "a number"),
    "retry_max_delay": _delay,
    "max_losses": _integer(0, 1000),
    "timeout": _seconds,
    "total_timeout": _seconds,
    "pending_timeout": _seconds,
    "kill_grace": _delay,
    "priority": _integer(-1_000_000, 1_000_000),
    "name": _or_none(_text),
    "key": _or_none(_text),
    "cluster": _or_none(_text),
    "pod": _or_none(_pod),
    "accept_failures": _flag,
    "env": _env,
    "cache": _or_none(_age),
    "returns": _integer(1, 1000),
}
