"""What a store of files promises; every implementation passes tests/contract/test_object_stores.py.

Used by code that reads or writes objects. The promises are those that S3, Azure Blob Storage,
Google Cloud Storage and a directory can all keep: conditional writes as of RFC 9110 §13
(`If-None-Match:
*`, `If-Match`), ranges, uploads in pieces that are not visible before they are complete, and
listing in the order of names. There is no rename, no append and no locking. All methods block, may
be called from any thread, and raise `errors.StoreError` and nothing else.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from kilnwork.data import errors

Data = bytes | bytearray | memoryview

MAX_KEY_BYTES = 1024
"""As in S3, the shortest of the clouds' limits."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+@~-]{0,199}")
_BATCH = 1000
"""Objects deleted at once: S3's DeleteObjects takes no more."""


class ObjectFacts(NamedTuple):
    """An object. `etag`: other than that of any other content this key ever had, without quotes.
    `modified`: when it was written, wall clock of the store, seconds."""

    key: str
    bytes: int
    etag: str
    modified: float


class Reading(contextlib.AbstractContextManager["Reading", None], Protocol):
    """A part of an object in its state when it was opened, even if it is replaced or deleted
    meanwhile.

    Iterate once for the bytes from `start` to `end` (exclusive), in pieces of at most 1 MiB; close
    it, or use it in a `with` block. Raises StoreError rather than end early.
    """

    facts: ObjectFacts
    start: int
    end: int

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Read no more; may be repeated."""
        ...


def read_in_pieces(reading: Reading, size: int) -> Reading:
    """The same reading, in pieces of at most `size` bytes where its store can: for those who wait
    for a slow reader with each."""
    if hasattr(reading, "piece_bytes"):
        reading.piece_bytes = size
    return reading


class Writer(contextlib.AbstractContextManager["Writer", None], Protocol):
    """An object that comes in pieces. No reader sees any of it before `commit`; leave the `with`
    block without, or call `abort`, and it never was. For one thread at a time."""

    @property
    def bytes(self) -> int:
        """Written so far."""
        ...

    def write(self, piece: Data) -> None:
        """Append; `piece` may be used again afterwards. Raises `StoreFull`."""
        ...

    def commit(self) -> ObjectFacts:
        """The object is there now and stays. Raises `ObjectExists`, `StoreFull`."""
        ...

    def abort(self) -> None:
        """Leave nothing; may be repeated, and does nothing after `commit`."""
        ...


class Store(Protocol):
    """Objects by key, `names/joined/by/slashes` (see `check_key`); no key is the directory of
    another.

    What was written is on disk, or as safe as the store makes it, when a call returns.
    """

    url: str
    """Opens this store in another process (`store_urls.open`)."""

    def head(self, key: str) -> ObjectFacts:
        """Raises `ObjectMissing`."""
        ...

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> Reading:
        """Bytes `start` to `end` (exclusive), cut off where the object ends. Raises
        `ObjectMissing`."""
        ...

    def put(
        self, key: str, data: Data, *, create: bool = False, if_match: str | None = None
    ) -> ObjectFacts:
        """Write a small object (up to a few MiB), all of it at once.

        `create`: only if there is none, else `ObjectExists`; of several at the same time one wins.
        `if_match`: only if its etag is still that one, else `ObjectChanged`. Neither: in any case.
        """
        ...

    def writer(self, key: str, *, create: bool = False) -> Writer:
        """For an object of any size. `create`: as with `put`, decided at `commit`."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectFacts]:
        """Objects whose key begins with `prefix` and is greater than `after`, in ascending order of
        keys. Those written or deleted meanwhile may be among them or not."""
        ...

    def directories(self, prefix: str = "") -> Iterator[str]:
        """The different next names of keys that go on below `prefix`, which is "" or ends with a
        slash; in ascending order, without slashes."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error. Readings go on."""
        ...


class Sweeps(Protocol):
    """A store that can be left with unfinished objects of writers that were killed."""

    def sweep(self, *, before: float, prefix: str = "") -> int:
        """Remove what killed writers left below a directory (`prefix` is "" or ends with a slash),
        if they wrote nothing since `before` (wall clock, seconds); returns how many. Others must be
        left to the cloud's lifecycle rules."""
        ...


class Probes(Protocol):
    """A store that depends on where it is."""

    def probe(self) -> None:
        """Try whether its promises are kept. Raises `StoreRefused`, which says what is lacking."""
        ...


def sweep(store: Store, *, before: float, prefix: str = "") -> int:
    """As `Sweeps.sweep`; 0 where a store has nothing to sweep."""
    swept: Callable[..., int] | None = getattr(store, "sweep", None)
    return 0 if swept is None else swept(before=before, prefix=prefix)


def probe(store: Store) -> None:
    """As `Probes.probe`, where a store can."""
    probed: Callable[[], None] | None = getattr(store, "probe", None)
    if probed is not None:
        probed()


def check_key(key: str) -> str:
    """`key`, if every store takes it: names of ASCII letters, digits and `._=+@~-`, of at most 200
    characters, beginning with a letter, digit or `_`, joined by slashes. Raises `BadKey`."""
    if len(key) > MAX_KEY_BYTES or not all(_NAME.fullmatch(name) for name in key.split("/")):
        raise errors.BadKey(
            f"{key[:200]!r} cannot be a key: use names of letters, digits and ._=+@~- that begin "
            f"with a letter or digit, joined by slashes, {MAX_KEY_BYTES} characters at most"
        )
    return key


def check_directory(prefix: str) -> str:
    """`prefix`, if `Store.directories` takes it. Raises `BadKey`."""
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise errors.BadKey(f"{prefix!r} is no directory: write {prefix + '/'!r}")
    return prefix


def check_prefix(prefix: str) -> str:
    """`prefix`, if keys can begin with it. Raises `BadKey`."""
    base, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(base)
    return prefix


def read_all(store: Store, key: str, *, most: int = 16 << 20) -> bytes:
    """A small object as a whole. Raises `ObjectMissing`; `StoreRefused` if it is larger."""
    with store.read(key) as reading:
        if reading.facts.bytes > most:
            raise errors.StoreRefused(
                f"{key} has {reading.facts.bytes} bytes: more than {most} are not read at once"
            )
        return b"".join(reading)


def clear(store: Store, prefix: str) -> int:
    """Delete all objects whose key begins with `prefix`; returns how many."""
    count = 0
    while True:
        batch = [facts.key for facts, _ in zip(store.list(prefix), range(_BATCH), strict=False)]
        if not batch:
            return count
        store.delete(batch)
        count += len(batch)
