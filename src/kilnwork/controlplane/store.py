"""Store: every object of the embedded API server, in memory and durable before it is visible.

Used by the API server and the controllers inside the server, on one event loop. Reads show
committed objects; `head` also shows writes that are accepted and not yet committed, which is the
state that a writer must build on. An accepted write gets its sequence number at once, is committed
together with all other queued writes (`database`), and only then becomes visible, is passed to the
followers and is acknowledged, in that order. The sequence number is the resourceVersion; it
continues after a restart.

The store is not a cache, and not for values of other rooms: the journal has its own file.
"""

import asyncio
import bisect
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kilnwork.api import meta
from kilnwork.controlplane import database, errors, store_types

log = logging.getLogger(__name__)

KEEP_CHANGES = 10_000
"""Changes kept for watches to resume from. More cost memory; fewer make slow clients list again."""

KEEP_BYTES = 32 * 1024 * 1024
"""Bytes of previous states in the log: large objects that change often must not fill the memory."""

MAX_OBJECT_BYTES = 8 << 20
"""Maximum size of an encoded object. A request carries less (3 MiB, `statuses.MAX_BODY_BYTES`): the
limit is for objects that grow by patches and defaults."""

Follower = Callable[[Sequence[store_types.StoreChange]], None]
"""Called on the event loop with the changes of one commit, in order; must not block or raise."""

_Names = dict[tuple[str, str], store_types.Stored]


class Store:
    """Store of all objects of one data directory.

    One per process; the caller holds the directory's lock.
    """

    def __init__(
        self, path: Path, *, keep_changes: int = KEEP_CHANGES, keep_bytes: int = KEEP_BYTES
    ) -> None:
        self._keep_changes = keep_changes
        self._keep_bytes = keep_bytes
        self._database = database.Database(path, committed=self._on_commit, failed=self._on_failure)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._objects: dict[str, _Names] = {}
        self._sorted: dict[str, list[tuple[str, str]]] = {}
        self._heads: dict[store_types.Key, store_types.Stored | int] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._log: list[store_types.StoreChange] = []
        self._log_bytes = 0
        self._accepted = 0
        self._sequence = 0
        self._epoch = 0
        self._followers: list[Follower] = []

    async def start(self) -> None:
        """Open the database file and load all objects. Raises StoreBroken."""
        self._loop = asyncio.get_running_loop()
        loaded = await asyncio.to_thread(self._database.start)
        for stored in loaded.stored:
            self._place(stored)
            self._sequence = max(self._sequence, stored.sequence)
        self._log = loaded.changes
        self._log_bytes = sum(len(c.previous or b"") for c in self._log)
        # The newest change may be a deletion, which leaves no object with its number.
        if self._log:
            self._sequence = self._log[-1].sequence
        self._accepted = self._sequence

    async def stop(self) -> None:
        """Commit the accepted writes and close the database file.

        Later writes raise StoreFailed.
        """
        await asyncio.to_thread(self._database.stop)
        await asyncio.sleep(0)  # run the commits that the thread has just reported
        self._fail_waiting(errors.StoreFailed("the store is closed"))
        self._loop = None

    @property
    def sequence(self) -> int:
        """Return the sequence number of the newest committed change: the resourceVersion of a
        list.
        """
        return self._sequence

    def get(self, key: store_types.Key) -> store_types.Stored | None:
        return self._objects.get(key.resource, {}).get((key.namespace, key.name))

    def head(self, key: store_types.Key) -> store_types.Stored | None:
        """Return an object as the next write finds it.

        It is committed, or accepted and not yet committed.
        """
        head = self._heads.get(key)
        if head is None:
            return self.get(key)
        return head if isinstance(head, store_types.Stored) else None

    def count(self, resource: str) -> int:
        """Return the number of committed objects of a resource."""
        return len(self._objects.get(resource, ()))

    def select(
        self, resource: str, namespace: str | None = None, *, after: tuple[str, str] | None = None
    ) -> Iterator[store_types.Stored]:
        """Yield the committed objects of a resource in the order of (namespace, name).

        `after`: only objects after this position. Consume the iterator without awaiting: a commit
        in between would change what it reads.
        """
        held = self._objects.get(resource, {})
        for name in self._names(resource, namespace, after):
            yield held[name]

    def select_at(
        self, resource: str, sequence: int, namespace: str | None = None
    ) -> list[store_types.Stored]:
        """Return the objects of a resource at an earlier sequence number. Raises TooOld."""
        held: dict[tuple[str, str], store_types.Stored | None] = {
            (s.key.namespace, s.key.name): s for s in self.select(resource, namespace)
        }
        # Backwards: the oldest change comes last, and its previous state is the wanted one.
        for change in reversed(self.changes_since(sequence)):
            key = change.key
            if key.resource != resource or namespace not in (None, key.namespace):
                continue
            was = None
            if change.previous is not None:
                version = store_types.sequence_of(change.previous)
                was = store_types.Stored(key, version, change.previous)
            held[(key.namespace, key.name)] = was
        return [s for _, s in sorted(held.items()) if s is not None]

    def changes_since(self, sequence: int) -> Sequence[store_types.StoreChange]:
        """Return the committed changes after a sequence number, in order.

        Raises TooOld when some of them are no longer in the log.
        """
        if sequence >= self._sequence:
            return ()
        # Without a log only the present state can be continued from.
        oldest = self._log[0].sequence if self._log else self._sequence + 1
        if sequence < oldest - 1:
            raise errors.TooOld(f"too old resource version: {sequence} ({oldest - 1})")
        # Sequence numbers have no gaps, so that the position follows from the number.
        return self._log[sequence - oldest + 1 :]

    def drop_log(self) -> None:
        """Drop the change log: reading an earlier state raises TooOld from now on."""
        self._log.clear()
        self._log_bytes = 0

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Call `follower` with the changes of every commit from now on.

        Return a function that unsubscribes the follower.
        """
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    async def put(
        self, key: store_types.Key, obj: meta.JsonObject, *, expected: int
    ) -> store_types.Stored:
        """Create or replace an object and return it as stored.

        `expected`: the sequence number of the object's head, 0 to create it. Writes the new
        resourceVersion into `obj`. The write is durable on return. Raises Superseded when the head
        has another sequence number by now, ObjectTooLarge, and StoreFailed when the disk write
        fails or the store is closed.
        """
        # No await from here until the write is queued: of two writers with the same head one fails.
        self._check(key, expected)
        before = self.head(key)
        sequence = self._accepted + 1
        obj["metadata"]["resourceVersion"] = str(sequence)
        raw = msgspec.json.encode(obj)
        if len(raw) > MAX_OBJECT_BYTES:
            raise errors.ObjectTooLarge(
                f"the object would have {len(raw)} bytes; limit is {MAX_OBJECT_BYTES}"
            )
        action = store_types.Action.ADDED if before is None else store_types.Action.MODIFIED
        previous = None if before is None else before.raw
        change = store_types.StoreChange(sequence, action, key, raw, previous)
        stored = store_types.Stored(key, sequence, raw)
        await self._accept(change, stored)
        return stored

    async def remove(self, key: store_types.Key, *, expected: int) -> store_types.StoreChange:
        """Delete an object and return the change.

        `expected`: the sequence number of the object's head. Raises Superseded and StoreFailed, as
        `put` does.
        """
        self._check(key, expected)
        before = self.head(key)
        if before is None:
            raise errors.Superseded
        sequence = self._accepted + 1
        # A watch may be resumed from this event, so that it needs a resourceVersion of its own.
        raw = store_types.last_state(before.raw, sequence)
        change = store_types.StoreChange(sequence, store_types.Action.DELETED, key, raw, before.raw)
        await self._accept(change, None)
        return change

    async def wait_committed(self, key: store_types.Key) -> None:
        """Wait until the head of an object is committed. Raises StoreFailed.

        A client may see the head only then.
        """
        head = self._heads.get(key)
        if head is None:
            return
        sequence = head.sequence if isinstance(head, store_types.Stored) else head
        done = self._waiting.get(sequence)
        if done is not None:
            await asyncio.shield(done)

    async def wait_all_committed(self) -> None:
        """Wait until every write accepted so far is committed. Raises StoreFailed."""
        # Commits are in order: when the newest write is committed, so are all others.
        done = self._waiting.get(self._accepted)
        if done is not None:
            await asyncio.shield(done)

    def _names(
        self, resource: str, namespace: str | None, after: tuple[str, str] | None
    ) -> list[tuple[str, str]]:
        names = self._sorted.get(resource)
        if names is None:
            names = self._sorted[resource] = sorted(self._objects.get(resource, ()))
        low, high = 0, len(names)
        if namespace is not None:
            low = bisect.bisect_left(names, (namespace, ""))
            # No string sorts between a namespace and the same with "\0" at its end.
            high = bisect.bisect_left(names, (namespace + "\0", ""))
        if after is not None:
            low = max(low, bisect.bisect_right(names, after))
        return names[low:high]

    def _check(self, key: store_types.Key, expected: int) -> None:
        head = self.head(key)
        if (0 if head is None else head.sequence) != expected:
            raise errors.Superseded

    async def _accept(
        self, change: store_types.StoreChange, stored: store_types.Stored | None
    ) -> None:
        if self._loop is None:
            raise errors.StoreFailed("the store is closed")
        self._accepted = change.sequence
        self._heads[change.key] = change.sequence if stored is None else stored
        done = self._waiting[change.sequence] = self._loop.create_future()
        body = None if stored is None else stored.raw
        floor = self._log[0].sequence if self._log else 0
        self._database.put(database.QueuedWrite(change, body, floor, self._epoch))
        # Shielded: the write is queued already, so cancelling the writer must not affect the
        # future that others may wait for too.
        await asyncio.shield(done)

    def _on_commit(self, rows: Sequence[database.QueuedWrite]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._commit, rows)

    def _on_failure(self, epoch: int, error: Exception) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._discard_accepted, epoch, error)

    def _commit(self, rows: Sequence[database.QueuedWrite]) -> None:
        changes = [row.change for row in rows]
        for row in rows:
            self._apply(row)
        self._sequence = changes[-1].sequence
        self._log.extend(changes)
        self._log_bytes += sum(len(c.previous or b"") for c in changes)
        self._trim_log()
        # A copy, as a follower may unsubscribe while it is called.
        for follower in tuple(self._followers):
            try:
                follower(changes)
            except Exception:
                log.exception("follower failed")
        # Followers before writers: a client that has its response must find the change in a watch.
        for change in changes:
            done = self._waiting.pop(change.sequence)
            if not done.done():
                done.set_result(None)

    def _apply(self, row: database.QueuedWrite) -> None:
        key, sequence = row.change.key, row.change.sequence
        if row.body is None:
            del self._objects[key.resource][(key.namespace, key.name)]
            self._sorted.pop(key.resource, None)
        else:
            self._place(store_types.Stored(key, sequence, row.body))
        # A later write of the same object may be queued: then that one stays the head.
        head = self._heads.get(key)
        if (head.sequence if isinstance(head, store_types.Stored) else head) == sequence:
            del self._heads[key]

    def _place(self, stored: store_types.Stored) -> None:
        key = stored.key
        names = self._objects.setdefault(key.resource, {})
        if (key.namespace, key.name) not in names:
            self._sorted.pop(key.resource, None)
        names[(key.namespace, key.name)] = stored

    def _trim_log(self) -> None:
        # Trimmed by a tenth at a time, as a deletion at the front of a list moves all the rest.
        if len(self._log) < self._keep_changes * 1.1 and self._log_bytes < self._keep_bytes:
            return
        drop = max(0, len(self._log) - self._keep_changes)
        kept = self._log_bytes - sum(len(c.previous or b"") for c in self._log[:drop])
        # One change stays: after a restart it may be all that shows the newest sequence number.
        while kept > self._keep_bytes * 0.9 and drop < len(self._log) - 1:
            kept -= len(self._log[drop].previous or b"")
            drop += 1
        del self._log[:drop]
        self._log_bytes = kept

    def _discard_accepted(self, epoch: int, error: Exception) -> None:
        if epoch != self._epoch:
            return
        self._epoch += 1
        # The loop runs the callbacks of the thread in order: commits before the failure are
        # applied. The numbers of the discarded writes are free, as no client has seen them.
        self._accepted = self._sequence
        # Also those of later writes, which the thread refuses: they may build on the failed ones.
        self._heads.clear()
        failed = errors.StoreFailed(f"the write could not be stored: {error}")
        failed.__cause__ = error
        self._fail_waiting(failed)

    def _fail_waiting(self, error: errors.StoreFailed) -> None:
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            if not done.done():
                done.set_exception(error)
