"""A session: submits calls and receives their results over one link to a dispatcher.

Used by task functions and futures. `driver_session.Driver` is the session of users' processes, the
worker's slots have another subclass. A `Session` creates task ids, numbers templates, sends calls
in batches, keeps the calls that the dispatcher has not accepted, and sends everything that is still
needed again on a new connection. What is kept for that is released as soon as the dispatcher has
it.

Locks: `_lock` orders the messages that are sent. Reading takes no lock, so that a signal handler
may read while the thread that it interrupted holds the lock; only one thread reads at a time. Data
that both the reader and other threads change is therefore changed only by single operations of dict
and deque, and iterated only as a copy: `dict.copy` is atomic, `list(d.items())` is not (it creates
tuples, which may run the garbage collector).
"""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from kilnwork.api import attempts, calls, task
from kilnwork.channel import blocking_link, frames, messages
from kilnwork.channel import errors as channel_errors
from kilnwork.data import blob_renewal
from kilnwork.data import local_blobs as blob_store
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import callbacks, errors, futures, message_batching, session_stack

log = logging.getLogger(__name__)

UNACCEPTED_CALLS = 16_384
UNACCEPTED_BYTES = 64 << 20
"""Numbers of unaccepted calls and of their bytes at which `submit` blocks: a busy dispatcher
accepts calls later, and their memory must be bounded."""

HEAVY_BYTES = 4096
"""Size in bytes from which a call counts towards UNACCEPTED_BYTES; smaller calls count only towards
UNACCEPTED_CALLS."""

KNOWN_SPECS = 1024
"""Maximum number of specs that are remembered by identity, so that they need not be encoded again;
when it is reached, all of them are forgotten."""

MAX_TEMPLATES = 1024
"""Number of templates above which templates that are not used any more are forgotten."""

_encode = msgspec.msgpack.Encoder().encode


class TemplateForgotten(Exception):
    """`submit` was called with the number of a template that was dropped after long disuse.

    Call `template` again.
    """


class Session:
    """A connection to a dispatcher that submits calls; the base of drivers' and slots' sessions.

    `connect`: returns a new connected socket (see `channel.blocking_link.Link`). `credential`:
    returns the credential; it is called for each Hello. `cluster`: the TaskCluster of the calls;
    None: the dispatcher's default. `decode`: decodes the messages that arrive on the link. `keep`:
    returns the blobs of a namespace, if the dispatcher's directory is not visible here.

    `in_slot`: whether submitted calls are children of a running task. `shares_files`: whether
    workers see our files. `imports_ours`: whether workers have our import path. `one_cluster`:
    whether the dispatcher has no other TaskCluster. `has_secrets`: whether variables of tasks can
    be taken from Secrets, as far as is known. `functions_only`: whether the dispatcher runs only
    Python functions. `servers`: returns connectors to the API server and to the manager
    (`job_requests`); None if there are none, and in a task. `retry_failed`: run calls again whose
    key names a failed call. `environment`: digest, as text, of the blob with the directory and
    modules that calls run with; `shipped`: the modules that can be imported from that blob.
    `tick_s`: see `channel.blocking_link.Handler`. `inherited`: the environment of processes that
    mappers start.
    """

    in_slot = False
    shares_files = True
    imports_ours = True
    one_cluster = False
    has_secrets = True
    functions_only = False
    servers: Callable[[], tuple[Any, Any]] | None = None
    retry_failed = False
    environment: str | None = None
    shipped: frozenset[str] = frozenset()
    tick_s: float | None = 30.0
    inherited: Mapping[str, str] = os.environ

    def __init__(  # noqa: PLR0913  the seams of a session: named once for each kind of it
        self,
        *,
        connect: Callable[[], Any],
        credential: Callable[[], str],
        namespace: str = "default",
        cluster: str | None = None,
        durable: bool = True,
        decode: Callable[[bytes], Any] = frames.decode_to_driver,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
        patience_s: float = 60.0,
        keep: Callable[[str], blob_store.Blobs] | None = None,
    ) -> None:
        self.namespace = namespace
        self.cluster = cluster or "default"
        self.blobs: blob_store.Blobs
        self.link: blocking_link.Link[Any] = blocking_link.Link(
            self,
            connect=connect,
            decode=decode,
            clock=clock or clocks.SystemClock(),
            entropy=entropy or ids.system_entropy(),
            patience_s=patience_s,
        )
        self._credential = credential
        self._cluster_given = cluster is not None
        self.durable = durable
        self._keep = keep
        self._blob_directory: Path | None = None
        self._lock = threading.Lock()
        self._ids = ids.TaskIds()
        self._session = os.urandom(16)
        self._number = 0
        self._templates: dict[int, messages.Template] = {}
        self._last_template = 0
        self._used_templates: set[int] = set()
        self._sweep_templates_at = MAX_TEMPLATES
        self._template_numbers: dict[bytes, int] = {}
        self._known_specs: dict[int, tuple[task.TaskSpec, int]] = {}
        self._batch: list[calls.CallItem] = []
        self._batch_bytes = 0
        self._watching: list[calls.Watched] = []
        self._unaccepted: deque[calls.CallItem] = deque()
        self._heavy: deque[tuple[int, int]] = deque()
        self._heavy_sent = 0  # written under the lock only
        self._heavy_accepted = 0  # written by the reader only
        self._open: dict[int, futures.CallFuture[Any]] = {}
        self._unconfirmed: dict[int, futures.CallFuture[Any]] = {}
        self._unconfirmed_order: deque[int] = deque()
        self._streams: dict[int, futures.CallFuture[Any]] = {}
        self._cancelling: dict[ids.TaskId, bool] = {}
        self._retrying: dict[int, messages.Retry] = {}
        self._pruning: dict[int, messages.Prune] = {}
        self._pruned: dict[int, messages.Pruned] = {}
        self._refusals: dict[int, str] = {}
        self.dropped = 0
        """Number of calls that were not accepted when the link ended."""

    # for task functions and futures

    def template(self, spec: task.TaskSpec) -> int:
        """Return the number of a template, which is a task spec that many calls share.

        The template is sent to the dispatcher once per connection.
        """
        known = self._known_specs.get(id(spec))
        if known is not None:
            return known[1]
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        encoded = _encode(spec)
        with self._lock:
            number = self._template_numbers.get(encoded)
            if number is None:
                if len(self._templates) >= self._sweep_templates_at:
                    self._forget_templates()
                number = self._last_template = self._last_template + 1
                message = messages.Template(number, spec)
                self._send(message)
                self._templates[number] = message
                self._template_numbers[encoded] = number
            self._used_templates.add(number)
            if len(self._known_specs) >= KNOWN_SPECS:
                self._known_specs.clear()
            self._known_specs[id(spec)] = spec, number
        return number

    def remember(self, template: int, held: object) -> None:
        """Store the task function of a template, in sessions that run calls themselves.

        Other sessions, such as this base class, ignore it.
        """

    def submit(  # noqa: PLR0913  called once per task: no bundle to build
        self,
        template: int,
        *,
        function: str,
        arguments: attempts.Payload,
        needs: tuple[ids.TaskId, ...] = (),
        name: str | None = None,
        key: str | None = None,
        make: type[futures.CallFuture[Any]] = futures.CallFuture,
        cache: calls.Cache | None = None,
    ) -> futures.CallFuture[Any]:
        """Submit a call and return its future. Blocks while too many calls are not accepted.

        `function`: the name under which children without a key are counted. `key`: names the call
        for ever. `make`: the class of the future, `streams.Stream` for generators. `cache`: the
        terms on which an earlier result may be used. Raises ValueError for a call that is too large
        for a message; `errors.DispatcherLost` or `errors.NoSession` if the link has ended;
        `TemplateForgotten` if `template` must be requested again.
        """
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        if not self._has_room():
            self._wait_for_room()
        size = message_batching.size(arguments, needs, name, key)
        if size > message_batching.MAX_CALL_BYTES:
            raise ValueError(
                f"one call takes {len(needs)} futures and {len(arguments.blobs)} references to "
                "values, more than a message holds: put tasks between that take some of them each"
            )
        with self._lock:
            if template not in self._templates:
                raise TemplateForgotten
            self._used_templates.add(template)
            parent, ordinal = self.parent(function, keyed=key is not None)
            number = self._number = self._number + 1
            task_id = self._ids.take()
            future = make(self, number, task_id)
            batch = self._batch
            batch.append(
                calls.CallItem(
                    number,
                    task_id,
                    template,
                    arguments,
                    needs,
                    name,
                    key,
                    ordinal,
                    parent,
                    self.retry_failed and key is not None,
                    cache,
                )
            )
            self._open[number] = future
            if key is not None or (parent is not None and (parent.attempt > 1 or parent.run > 1)):
                self._unconfirmed[number] = future
                self._unconfirmed_order.append(number)
            if make.streams:
                self._streams[number] = future
            self._batch_bytes += size
            if size >= HEAVY_BYTES:
                self._heavy.append((number, size))
                self._heavy_sent += size
            if len(batch) >= message_batching.CALLS or self._batch_bytes >= message_batching.BYTES:
                self._send_batch()
        self.link.schedule_gather()
        self._fail_if_over(number)
        return future

    def future(self, task_id: ids.TaskId) -> futures.CallFuture[Any]:
        """Return the future of an existing task, whichever process submitted it."""
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        with self._lock:
            number = self._number = self._number + 1
            future: futures.CallFuture[Any] = futures.CallFuture(self, number, task_id)
            self._watching.append(calls.Watched(number, task_id))
            self._open[number] = future
        self.link.schedule_gather()
        self._fail_if_over(number)
        return future

    def cancel(self, tasks: Iterable[ids.TaskId], *, recursive: bool = True) -> None:
        """Cancel these tasks, and also all tasks that they have spawned unless `recursive` is
        False.
        """
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        with self._lock:
            wanted = tuple(tasks)
            self._cancelling.update(dict.fromkeys(wanted, recursive))
            self._send_batch()
            for message in message_batching.cancels(wanted, recursive=recursive):
                self._send(message)
            if self.link.socket is not None and len(self._cancelling) > 2 * len(self._open) + 1000:
                self._keep_open_cancels()
        self.link.flush()

    def retry(
        self, task_id: ids.TaskId, *, failed: bool, force: bool = False, started: bool = False
    ) -> futures.CallFuture[Any]:
        """Run a finished task again and return the future of the new run; see `messages.Retry`.

        Raises ConfigurationError if it cannot run again.
        """
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        with self._lock:
            self._send_batch()
            number = self._number = self._number + 1
            future: futures.CallFuture[Any] = futures.CallFuture(self, number, task_id)
            message = messages.Retry(number, task_id, failed, force, started)
            self._retrying[number] = message
            self._open[number] = future
            self._send(message)
        self.link.flush()
        try:
            self.link.wait(lambda: number not in self._retrying)
        except channel_errors.ChannelError as error:
            raise futures.lost(error) from error
        refusal = self._refusals.pop(number, "")
        if refusal:
            self._open.pop(number, None)
            raise errors.ConfigurationError(refusal)
        return future

    def prune(
        self,
        *,
        older_s: float,
        keep: int | None = None,
        free_bytes: int | None = None,
        keyed: bool = False,
        dry_run: bool = False,
    ) -> messages.Pruned:
        """Delete finished tasks from the dispatcher's journal; see `messages.Prune`.

        Raises ConfigurationError if the dispatcher does not let drivers do this, and
        DispatcherLost.
        """
        if self.link.failure is not None:
            raise futures.lost(self.link.failure)
        with self._lock:
            self._send_batch()
            number = self._number = self._number + 1
            message = messages.Prune(number, older_s, keep, free_bytes, keyed, dry_run)
            self._pruning[number] = message
            self._send(message)
        self.link.flush()
        try:
            self.link.wait(lambda: number not in self._pruning)
        except channel_errors.ChannelError as error:
            raise futures.lost(error) from error
        pruned = self._pruned.pop(number)
        if pruned.refusal:
            raise errors.ConfigurationError(pruned.refusal)
        return pruned

    def block(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        tasks: Sequence[ids.TaskId],
        *,
        first: bool = False,
    ) -> bool:
        """Wait until `done()` returns True; return False after `timeout_s` seconds.

        `done` depends on messages that the link reads. `tasks`: the tasks waited for, at most the
        first TASKS_NAMED; `first`: whether the wait ends when one of these tasks has ended. Every
        wait of a thread for tasks uses this method, and so does `submit` while it blocks.
        """
        return self.link.wait(done, timeout_s)

    def suspended(self, tasks: Sequence[ids.TaskId]) -> None:
        """Record that a coroutine is about to await these tasks, until `resumed` is called.

        Used by the sessions of slots; here it does nothing.
        """

    def resumed(self) -> None:
        """Record that a coroutine no longer awaits the tasks of the last `suspended`."""

    def call_back(self, callback: Callable[[Any], object], future: Any) -> None:
        """Schedule a callback of a finished future in the callback thread."""
        callbacks.runner.put(callback, future)

    def parent(self, function: str, *, keyed: bool) -> tuple[attempts.AttemptRef | None, int]:
        """Return the attempt that submits a call of `function`, and the ordinal of this call in it.

        Overridden by the sessions of slots: in a driver there is no attempt.
        """
        return None, 0

    def confirm(self, number: int) -> None:
        """Wait until the dispatcher has confirmed or replaced the id of call `number`."""
        if number in self._unconfirmed:
            try:
                self.link.wait(lambda: number not in self._unconfirmed)
            except channel_errors.ChannelError as error:
                raise futures.lost(error) from error

    def all_accepted(self) -> bool:
        """Return whether the dispatcher has accepted every call."""
        return not self._batch and not self._unaccepted

    @property
    def unfinished(self) -> int:
        """The number of calls that have not finished, without cancelled calls."""
        # A result wakes its waiters before its future is removed from `_open`.
        waited = [future for future in self._open.copy().values() if not future.done()]
        return sum(future.known_task not in self._cancelling for future in waited)

    @property
    def unaccepted(self) -> int:
        """The number of calls that the dispatcher may not have accepted."""
        return len(self._batch) + len(self._unaccepted)

    # for the link

    def hello(
        self, epoch: int
    ) -> messages.DriverHello | messages.SlotHello | messages.AttemptHello:
        """Return the first message of a new connection."""
        return messages.DriverHello(
            messages.VERSION, self._session, self._credential(), self.namespace, epoch
        )

    def attached(self, message: messages.Attached) -> list[frames.Sent]:
        """Return the messages to send on a new connection.

        They are the templates and unaccepted calls, pending retries and prunes, and the watches and
        cancellations of open calls.
        """
        self.namespace = message.namespace
        if not self._cluster_given:
            self.cluster = message.cluster
        if self._keep is not None:
            if self._blob_directory is None:
                self.blobs = self._keep(message.namespace)
                self._blob_directory = self.blobs.directory
        elif self._blob_directory != (directory := Path(message.blobs)):
            self._blob_directory = directory
            self.blobs = blob_store.Blobs(directory, durable=self.durable)
        with self._lock:
            resent: list[frames.Sent] = [*self._templates.values()]
            unaccepted = list(self._unaccepted)
            resent.extend(message_batching.submits(unaccepted))
            known = {item.number for item in unaccepted}
            known.update(item.number for item in self._batch)
            known.update(watched.number for watched in self._watching)
            retrying = self._retrying.copy()
            known.update(retrying)
            resent += [msgspec.structs.replace(one, started=True) for one in retrying.values()]
            resent += self._pruning.copy().values()
            watched = (
                calls.Watched(number, future.known_task)
                for number, future in self._open.copy().items()
                if number not in known
            )
            resent.extend(message_batching.watches(watched))
            for recursive in (True, False):
                cancelling = self._cancelling.copy().items()
                wanted = tuple(t for t, each in cancelling if each is recursive)
                resent.extend(message_batching.cancels(wanted, recursive=recursive))
            self._keep_open_cancels()
        return resent

    def received(self, message: Any) -> None:
        """Handle a message of the dispatcher: Accepted, FoundCall, Results and others.

        Handling is idempotent, since after an interruption the same message is handled again.
        """
        if isinstance(message, messages.Results):
            self._ended(message.items)
        elif isinstance(message, messages.Accepted):
            self._accepted(message.number)
        elif isinstance(message, messages.FoundCall):
            future = self._unconfirmed.get(message.number) or self._open.get(message.number)
            if future is not None:
                future.found(message.task)
            self._unconfirmed.pop(message.number, None)
        elif isinstance(message, messages.Retried):
            if message.refusal:
                self._refusals[message.number] = message.refusal
            self._retrying.pop(message.number, None)
        elif isinstance(message, messages.Pruned):
            self._pruned[message.number] = message
            self._pruning.pop(message.number, None)
        elif isinstance(message, messages.Streamed):
            stream = self._streams.get(message.number)
            if stream is not None:
                stream.yielded(message.index, message.payload)

    def gather(self) -> None:
        """Send the calls and watches that were held back for batching."""
        if self._batch or self._watching:
            with self._lock:
                self._send_batch()

    def tick(self) -> None:
        """Renew the blobs that this process still needs, so that they are not deleted.

        Called in the background thread.
        """
        if self._blob_directory is not None:
            blob_renewal.renew(self.blobs, self._submitted_digests)

    def link_ended(self, error: Exception) -> None:
        """Fail all open futures after the link has ended for good.

        An error of a callback does not keep the other futures from failing.
        """
        interruption: BaseException | None = None
        for number in list(self._open):
            try:
                self._fail(number, futures.lost(error))
            except Exception:
                log.exception("a callback of a future failed")
            except BaseException as raised:  # noqa: BLE001  Ctrl-C: raised once all are notified
                interruption = raised
        self.dropped += self.unaccepted
        self._batch.clear()
        self._unconfirmed.clear()
        self._unconfirmed_order.clear()
        self._streams.clear()
        self._retrying.clear()
        self._pruning.clear()
        self._unaccepted.clear()
        self._heavy.clear()
        self._cancelling.clear()
        if interruption is not None:
            raise interruption

    # private; `_send…` under the lock

    def _ended(self, items: Iterable[calls.CallResult]) -> None:
        open_futures, streams = self._open, self._streams
        for item in items:
            future = open_futures.get(item.number)
            if future is not None:
                payload = item.payload
                if payload is not None and (payload.digest or payload.blobs):
                    blob_renewal.hold(future, payload.digests)
                future.settle(item)
                if self._cancelling:
                    self._cancelling.pop(future.known_task, None)
                if streams:
                    streams.pop(item.number, None)
                open_futures.pop(item.number, None)

    def _accepted(self, number: int) -> None:
        """Remove accepted calls from the queues.

        `link_ended` may clear the queues concurrently in another thread.
        """
        with contextlib.suppress(IndexError):
            while self._unaccepted[0].number <= number:
                self._unaccepted.popleft()
        with contextlib.suppress(IndexError):
            while self._heavy[0][0] <= number:
                self._heavy_accepted += self._heavy.popleft()[1]
        with contextlib.suppress(IndexError):
            while self._unconfirmed_order[0] <= number:
                self._unconfirmed.pop(self._unconfirmed_order.popleft(), None)

    def _fail_if_over(self, number: int) -> None:
        """Fail the future of a call if the link has ended.

        `link_ended` may have missed a future that was created at the same time.
        """
        if self.link.failure is not None:
            self._fail(number, futures.lost(self.link.failure))

    def _fail(self, number: int, error: BaseException) -> None:
        future = self._open.get(number)
        if future is not None:
            try:
                future.settle(futures.ERROR, error)
            finally:
                self._open.pop(number, None)

    def _send_batch(self) -> None:
        """Send the batched calls and watches.

        An interruption may make it record and send calls twice, which is harmless, but never omits
        them. Calls are recorded before they are sent, since they may be accepted before the next
        line runs.
        """
        if self._batch:
            batch = tuple(self._batch)
            self._unaccepted.extend(batch)
            self._send(messages.Submit(batch))
            self._batch.clear()
            self._batch_bytes = 0
        if self._watching:
            for message in message_batching.watches(self._watching):
                self._send(message)
            self._watching.clear()

    def _forget_templates(self) -> None:
        """Drop templates that no call has used since the last sweep.

        Templates of calls that may have to be sent again are kept.
        """
        needed = self._used_templates
        needed |= {item.template for item in (*self._unaccepted.copy(), *self._batch)}
        forgotten = [number for number in self._templates if number not in needed]
        self._used_templates = set()
        for number in forgotten:
            del self._template_numbers[_encode(self._templates.pop(number).spec)]
        self._known_specs.clear()
        self._sweep_templates_at = max(MAX_TEMPLATES, 2 * len(self._templates))
        if forgotten:
            self._send(messages.Forget(tuple(forgotten)))

    def _keep_open_cancels(self) -> None:
        """Drop cancellations of tasks that have finished, so that they are not sent again."""
        still = {future.known_task for future in list(self._open.values())}
        for each in list(self._cancelling):
            if each not in still:
                self._cancelling.pop(each, None)

    def _send(self, message: frames.Sent) -> None:
        self.link.send(message)

    def _submitted_digests(self) -> Iterable[bytes]:
        """Return the digests of blobs of calls that may not have a row in the journal yet."""
        items = (*self._unaccepted.copy(), *self._batch.copy())
        return {digest for item in items for digest in item.arguments.digests}

    def _has_room(self) -> bool:
        few = len(self._unaccepted) < UNACCEPTED_CALLS
        return few and self._heavy_bytes < UNACCEPTED_BYTES

    @property
    def _heavy_bytes(self) -> int:
        return self._heavy_sent - self._heavy_accepted

    def _wait_for_room(self) -> None:
        try:
            self.block(self._has_room, None, ())
        except channel_errors.ChannelError as error:
            raise futures.lost(error) from error


def current() -> Session:
    """Return the innermost open session of this process. Raises `errors.NoSession`."""
    return cast(Session, session_stack.innermost())


blob_store.locate = lambda: current().blobs


def activate(session: Session) -> None:
    """Make `session` the session that task functions submit to."""
    session_stack.add(session)


def deactivate(session: Session) -> None:
    """Undo `activate`; may be called more than once."""
    session_stack.remove(session)
