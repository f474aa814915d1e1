"""Task functions: `@kiln.task` makes a `Task` of a Python function.

Used by programs, and by the worker's slots, which load a `Task` by its name or from its bytes
(`load`, `function_of`, `conversion_of`, `may_retry`). Calling a task runs the function in this
process, as if it had no decorator; `submit` and `map` send calls to the current session. Not a
running task: that is a `Future` in the submitter and a `Context` inside.

Options of a call (`name`, `key`, retries…) are passed to `.options(…)`, never to `submit` itself:
all arguments of `submit` are the function's own, whatever their names.
"""

import functools
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from importlib import import_module
from typing import Any, Generic, NamedTuple, ParamSpec, Self, TypeVar, Unpack, overload

from kilnwork.api import attempts, calls
from kilnwork.data import blob_renewal, local_blobs
from kilnwork.sdk import (
    cache_keys,
    call_map,
    code_activation,
    errors,
    futures,
    options,
    serialization,
    session,
    streams,
)
from kilnwork.sdk import progress as progress_line

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Y = TypeVar("Y")


class _Code:
    """The location of a task's function for workers: its name, or a blob that contains it.

    `digest`: the digest of that blob, as text. `data`: the content of that blob; None if the
    function can be imported, or came from the blob.
    """

    def __init__(self, name: str, digest: str | None = None) -> None:
        self.name = name
        self.digest = digest
        self.data: bytes | None = None


class _Bound(NamedTuple):
    """The number of a task's template in the session in which the task was last used.

    `environment`: the environment that the session had then; the session of a slot changes its
    environment with each call.
    """

    session: Callable[[], session.Session | None]
    environment: str | None
    number: int


class _Binding:
    """The last `_Bound` of a task, shared by copies of the task that differ only in name or key."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = _Bound(lambda: None, None, 0)  # replaced as a whole, since any thread may submit


class Task(Generic[P, R_co]):
    """A function that can run as a task; `@kiln.task` returns it."""

    __name__: str
    __qualname__: str

    _future: type[futures.CallFuture[Any]] = futures.CallFuture

    def __init__(self, function: Callable[..., Any], given: options.Options) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = given
        self._name: str | None = None
        self._key: str | None = None
        self._code = _Code(serialization.function_name(function))
        self._binding = _Binding()
        self._digest = b""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in this process, as if it were not a task."""
        result: R_co = self._function(*args, **kwargs)
        return result

    @overload
    def submit(
        self: "Task[P, futures.Future[A]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> futures.Future[A]: ...
    @overload
    def submit(
        self: "Task[P, A | futures.Future[A]]", /, *args: P.args, **kwargs: P.kwargs
    ) -> futures.Future[A]: ...
    @overload
    def submit(
        self: "Task[Any, futures.Future[A]]", /, *args: Any, **kwargs: Any
    ) -> futures.Future[A]: ...
    @overload
    def submit(
        self: "Task[Any, A | futures.Future[A]]", /, *args: Any, **kwargs: Any
    ) -> futures.Future[A]: ...
    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit a call with these arguments to the current session; return its future at once.

        Arguments may contain futures at any depth: the call starts when all of them have finished,
        and the function gets their values. Raises NoSession, NotPicklable, DispatcherLost, and
        BadOption for options that the session does not support, such as `pod` with `kiln.start`.
        """
        return self._send(session.current(), args, kwargs, self._key)

    @overload
    def map(
        self: "Task[Any, futures.Future[A]]",
        iterable: Iterable[Any],
        /,
        *more: Iterable[Any],
        key: Callable[..., str] | None = None,
        max_in_flight: int | None = None,
        max_failed: int | None = None,
        fail_fast: bool = False,
        progress: bool = False,
    ) -> futures.Futures[A]: ...
    @overload
    def map(
        self: "Task[Any, A | futures.Future[A]]",
        iterable: Iterable[Any],
        /,
        *more: Iterable[Any],
        key: Callable[..., str] | None = None,
        max_in_flight: int | None = None,
        max_failed: int | None = None,
        fail_fast: bool = False,
        progress: bool = False,
    ) -> futures.Futures[A]: ...
    def map(
        self,
        iterable: Iterable[Any],
        /,
        *more: Iterable[Any],
        key: Callable[..., str] | None = None,
        max_in_flight: int | None = None,
        max_failed: int | None = None,
        fail_fast: bool = False,
        progress: bool = False,
    ) -> Any:
        """Submit a call for each item; with several iterables, for each row of items.

        As with the built-in `map`, the shortest iterable ends it: `itertools.repeat(x)` passes x to
        each call. `key`: `key(*row)` returns the key of a call. `max_in_flight`: the maximum number
        of open calls; the next call is submitted when an earlier call has finished. `max_failed`:
        when more calls have failed, cancel the open calls and submit no others; `result()` of a
        cancelled call raises Cancelled, caused by the failure that exceeded the limit.
        `fail_fast=True` is `max_failed=0`. `progress`: show the progress on a terminal or in a
        notebook until all calls are done.

        Returns the futures in the order of the items. With `max_in_flight` the sequence grows while
        it is iterated, and an item is taken from the iterable only when its call is submitted;
        inside a task, further calls are submitted only while the task uses the sequence.
        """
        here = session.current()
        limits = call_map.Limits(
            of=self._code.name,
            max_in_flight=max_in_flight,
            max_failed=0 if fail_fast and max_failed is None else max_failed,
        )

        def submit(row: tuple[Any, ...]) -> futures.CallFuture[Any]:
            named = self._key if key is None else options.checked("key", key(*row), of=limits.of)
            return self._send(here, row, {}, named)

        rows = zip(iterable, *more, strict=False)
        made = call_map.run(rows, submit, limits, in_background=not here.in_slot)
        if progress:
            progress_line.show(made, limits.of)
        return made

    def options(self, **changes: Unpack[options.CallChanges]) -> Self:
        """Return a copy of the task with other options; see `options.Changes`.

        `key` names the call for ever: in a driver, a second submit with the same key and namespace
        refers to the same call; inside a task, the key finds the child that an earlier attempt has
        spawned. Raises BadOption.
        """
        changed = dict(changes)
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        for option in options.PER_CALL & changed.keys():
            value = options.checked(option, changed.pop(option), of=self._code.name)
            copy.__dict__[f"_{option}"] = value
        if "returns" in changed:
            raise errors.BadOption(
                f"{self._code.name}: returns={changed['returns']!r}: belongs to the function: "
                "@kiln.task(returns=…)"
            )
        if changed:
            copy._options = options.changed(self._options, changed, of=self._code.name)
            copy._binding = _Binding()
            if copy._options.retry_on != self._options.retry_on:
                copy._code = _Code(self._code.name)
        return copy

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._code.name}>"

    # submitting

    def _send(
        self, here: session.Session, args: tuple[Any, ...], kwargs: dict[str, Any], key: str | None
    ) -> futures.CallFuture[Any]:
        bound = self._binding.now
        if bound.session() is not here or bound.environment != here.environment:
            bound = self._bind(here)
        arguments, needs = serialization.pack_arguments(args, kwargs, here.blobs)
        cache = self._cache(here, arguments)
        while True:
            try:
                return here.submit(
                    bound.number,
                    function=self._code.name,
                    arguments=arguments,
                    needs=needs,
                    name=self._name,
                    key=key,
                    make=self._future,
                    cache=cache,
                )
            except session.TemplateForgotten:
                bound = self._bind(here)

    def _cache(self, here: session.Session, arguments: attempts.Payload) -> calls.Cache | None:
        """Return the terms on which a call may use an earlier result, or None."""
        if self._options.cache is None:
            return None
        if isinstance(self, StreamTask):
            raise errors.BadOption(
                f"{self._code.name}: cache={self._options.cache!r}: a generator has no result that "
                "could be used again: return a list"
            )
        if not self._digest:
            self._digest = cache_keys.function_digest(
                self._function, of=self._code.name, blobs=here.blobs
            )
        return cache_keys.terms(
            self._digest, self._options, environment=here.environment, arguments=arguments
        )

    def _bind(self, here: session.Session) -> _Bound:
        """Send the template of this task to a session if necessary, and return its number there."""
        given = self._options
        if given.cluster is None:
            given = options.changed(given, {"cluster": here.cluster}, of=self._code.name)
        elif here.one_cluster and given.cluster != here.cluster:
            raise errors.BadOption(
                f"{self._code.name}: cluster={given.cluster!r}: a kiln.start() has only "
                f"{here.cluster!r}; the clusters of a server are reached with kiln.connect()"
            )
        if given.pod is not None and here.one_cluster:
            raise errors.BadOption(
                f"{self._code.name}: pod={{'spec': {given.pod.spec!r}}}: a kiln.start() has no "
                "Pods: use kiln.connect() to a `kiln up` or a manager in a cluster, or leave pod= "
                "out: .options(pod=None)"
            )
        _check_variables(given, here, of=self._code.name)
        environment = here.environment
        number = here.template(
            options.spec(
                given,
                function=self._code.name,
                code=self._shipped(here),
                environment=environment,
                stream=isinstance(self, StreamTask),
            )
        )
        here.remember(number, self)
        bound = self._binding.now = _Bound(weakref.ref(here), environment, number)
        return bound

    def _shipped(self, here: session.Session) -> str | None:
        """Return the digest of the blob with this task, or None if workers can import the task."""
        reached = _reached(self._function, here)
        if reached and self._importable():
            return None
        code = self._code
        if code.digest is not None and code.data is None:  # the function came from that blob
            digest = local_blobs.parse(code.digest)
            if here.blobs.touch(digest):
                blob_renewal.hold(code, (digest,))
                return code.digest
        if code.data is None:
            code.data = serialization.pack_by_value(self, self._function, along=not reached)
        digest, _ = here.blobs.put((code.data,))
        blob_renewal.hold(code, (digest,))
        code.digest = local_blobs.text(digest)
        return code.digest

    def _importable(self) -> bool:
        """Return whether a worker can import this task by the name of its function."""
        found = serialization.located(self._function)
        if isinstance(found, Task):
            mine, other = self._options.retry_on, found._options.retry_on
            return found._function is self._function and mine == other
        return found is self._function and self._options.retry_on is None

    # pickling: by name if it can be imported, else with its function

    def __reduce__(self) -> Any:
        if self._named(self):
            return self._function.__qualname__
        return _empty, (type(self),), self._state()

    def _named(self, wanted: Any) -> bool:
        """Return whether this task, or its function, is pickled by name."""
        function = self._function
        found = serialization.located(function)
        if found is None or serialization.taken_along(function.__module__):
            return False
        return wanted is found or wanted is function_of(found)

    def _state(self) -> dict[str, Any]:
        function: Any = self._function
        if self._named(function):
            function = _Elsewhere(function.__module__, function.__qualname__)
        return {
            "function": function,
            "options": self._options,
            "name": self._name,
            "key": self._key,
            "digest": self._code.digest,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        function = state["function"]
        if isinstance(function, _Elsewhere):
            function = function.found()
        Task.__init__(self, function, state["options"])
        self._name, self._key = state["name"], state["key"]
        self._code = _Code(self._code.name, state["digest"])


class _Elsewhere:
    """A reference to a function whose name in its module refers to a Task, not to the function."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def found(self) -> Callable[..., Any]:
        held: Any = import_module(self.module)
        for step in self.name.split("."):
            held = getattr(held, step)
        function: Callable[..., Any] = function_of(held)
        return function


def _check_variables(given: options.Options, here: session.Session, *, of: str) -> None:
    """Raise BadOption if a task cannot have the environment variables that its options name.

    They cannot be combined with `pod=`, and the session may have no Secrets.
    """
    if given.env and given.pod is not None:
        raise errors.BadOption(
            f"{of}: env= beside pod=: the container in the template of pod= has its own: "
            "pod={'spec': {'containers': [{'env': [{'name': …, 'value': …}]}]}}"
        )
    secret = next((one for one in given.env if one.value_from is not None), None)
    if secret is not None and not here.has_secrets:
        raise errors.BadOption(
            f"{of}: env={{{secret.name!r}: kiln.SecretKey(…)}}: this session has no Secrets: "
            "kiln.start(secrets=DIRECTORY) takes them from files DIRECTORY/NAME/KEY, "
            "kiln.connect() from Kubernetes"
        )


def _reached(function: Callable[..., Any], here: session.Session) -> bool:
    """Return whether the workers of a session can import the module of a function."""
    if not serialization.findable(function):
        return False
    top = function.__module__.partition(".")[0]
    return here.imports_ours or top in here.shipped or code_activation.installed(top)


def _empty(kind: type[Task[Any, Any]]) -> Task[Any, Any]:
    """Return a task without its state.

    While it is being unpickled, its function may refer to it.
    """
    return object.__new__(kind)


class AsyncTask(Task[P, R_co]):
    """A task of an `async def` function; its result is the awaited value."""

    def __call__(  # type: ignore[override]
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R_co]:
        """Return the function's coroutine, to be awaited in this process."""
        coroutine: Coroutine[Any, Any, R_co] = self._function(*args, **kwargs)
        return coroutine


class StreamTask(Task[P, list[Y]], Generic[P, Y]):
    """A task of a generator function: its values arrive while it runs."""

    _future = streams.Stream

    def __call__(  # type: ignore[override]
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[Y]:
        """Return the function's generator, to be iterated in this process."""
        generator: Iterator[Y] = self._function(*args, **kwargs)
        return generator

    @overload
    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> streams.Stream[Y]: ...
    @overload
    def submit(self, /, *args: Any, **kwargs: Any) -> streams.Stream[Y]: ...
    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit as `Task.submit` does; the future can be iterated while the generator runs."""
        return self._send(session.current(), args, kwargs, self._key)


class AsyncStreamTask(StreamTask[P, Y]):
    """A task of an `async def` generator function."""

    def __call__(  # type: ignore[override]
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[Y]:
        """Return the function's asynchronous generator, to be iterated in this process."""
        generator: AsyncIterator[Y] = self._function(*args, **kwargs)
        return generator


class SplitTask(Task[P, R_co]):
    """A task with several results (`returns=n`): one future for each item of the tuple."""

    @overload  # type: ignore[override]
    def submit(
        self: "SplitTask[Any, tuple[A, B]]", /, *args: Any, **kwargs: Any
    ) -> tuple[futures.Future[A], futures.Future[B]]: ...
    @overload
    def submit(
        self: "SplitTask[Any, tuple[A, B, C]]", /, *args: Any, **kwargs: Any
    ) -> tuple[futures.Future[A], futures.Future[B], futures.Future[C]]: ...
    @overload
    def submit(self, /, *args: Any, **kwargs: Any) -> tuple[futures.Future[Any], ...]: ...
    def submit(self, /, *args: Any, **kwargs: Any) -> Any:
        """Submit as `Task.submit` does; return a tuple of futures, one for each item of the
        result.
        """
        whole = self._send(session.current(), args, kwargs, self._key)
        return whole.parts(self._options.returns)


# for the code that runs tasks


def load(data: bytes | memoryview, code: str) -> Any:
    """Return the task or function that is pickled in `data`, the content of the blob `code`.

    `code`: the digest of the blob, as text.
    """
    loaded = serialization.load_function(data)
    if isinstance(loaded, Task):
        loaded._code.digest = code
    return loaded


def function_of(held: Any) -> Any:
    """Return the function of a Task or of a job (`job_functions`), or `held` itself if it is
    neither.
    """
    if isinstance(held, Task):
        return held._function
    return getattr(held, "__kiln_function__", held)


def conversion_of(held: Any) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return the function that converts the option values of a job to arguments.

    None if `held` is not a job.
    """
    return getattr(held, "__kiln_arguments__", None)


def may_retry(held: Any, error: BaseException) -> bool:
    """Return whether the option `retry_on` of a task allows another attempt after this
    exception.
    """
    if not isinstance(held, Task) or held._options.retry_on is None:
        return True
    return isinstance(error, held._options.retry_on)
