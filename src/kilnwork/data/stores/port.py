"""Store port: the guarantees of a store of files; all implementations pass
tests/contract/test_object_stores.py.

Used by code that reads or writes objects. The guarantees are those that S3, Azure Blob Storage,
Google Cloud Storage and a directory can all keep: conditional writes as in RFC 9110 §13
(`If-None-Match: *`, `If-Match`), ranges, uploads in pieces that are invisible until they are
complete, and listing in the order of names. There is no rename, no append and no locking. All
methods block, may be called from any thread, and raise only `errors.StoreError`.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from kilnwork.data import errors

Data = bytes | bytearray | memoryview

MAX_KEY_BYTES = 1024
"""Maximum length of a key in bytes: that of S3, the smallest limit of the clouds."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+@~-]{0,199}")
_BATCH = 1000
"""Number of objects deleted at once, the limit of S3's DeleteObjects."""


class ObjectFacts(NamedTuple):
    """Key, size, etag and time of an object.

    `etag`: differs from that of any other content this key ever had; without quotes. `modified`:
    when the object was written, in seconds of the store's wall clock.
    """

    key: str
    bytes: int
    etag: str
    modified: float


class Reading(contextlib.AbstractContextManager["Reading", None], Protocol):
    """An open range of an object, as the object was when it was opened, even if it is replaced or
    deleted meanwhile.

    Iterate once for the bytes from `start` to `end` (exclusive), in pieces of at most 1 MiB; close
    it, or use it in a `with` block. Raises StoreError rather than end early.
    """

    facts: ObjectFacts
    start: int
    end: int

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Release all resources; may be repeated."""
        ...


def read_in_pieces(reading: Reading, size: int) -> Reading:
    """Limit the pieces of a reading to `size` bytes, if its store supports that, and return the
    reading.

    For callers that wait for a slow reader at each piece.
    """
    if hasattr(reading, "piece_bytes"):
        reading.piece_bytes = size
    return reading


class Writer(contextlib.AbstractContextManager["Writer", None], Protocol):
    """An object that is being written in pieces.

    Readers see nothing of it before `commit`; leaving the `with` block without commit, or calling
    `abort`, discards it. For one thread at a time.
    """

    @property
    def bytes(self) -> int:
        """Number of bytes written so far."""
        ...

    def write(self, piece: Data) -> None:
        """Append a piece to the object; the caller may reuse `piece` afterwards. Raises
        `StoreFull`.
        """
        ...

    def commit(self) -> ObjectFacts:
        """Make the object visible and durable. Raises `ObjectExists`, `StoreFull`."""
        ...

    def abort(self) -> None:
        """Discard the object; may be repeated, and has no effect after `commit`."""
        ...


class Store(Protocol):
    """A store of objects by key, `names/joined/by/slashes` (see `check_key`); no key is the
    directory of another key.

    When a call returns, the bytes that it wrote are on disk, or as durable as the store makes them.
    """

    url: str
    """URL with which another process opens this store (`store_urls.open_store`)."""

    def head(self, key: str) -> ObjectFacts:
        """Return key, size, etag and time of an object. Raises `ObjectMissing`."""
        ...

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> Reading:
        """Open bytes `start` to `end` (exclusive), limited to the size of the object. Raises
        `ObjectMissing`."""
        ...

    def put(
        self, key: str, data: Data, *, create: bool = False, if_match: str | None = None
    ) -> ObjectFacts:
        """Write a small object (up to a few MiB) at once.

        `create`: only if the object does not exist, else `ObjectExists`; only one of several
        simultaneous calls succeeds. `if_match`: only if the object still has this etag, else
        `ObjectChanged`. With neither, write in any case.
        """
        ...

    def writer(self, key: str, *, create: bool = False) -> Writer:
        """Return a writer for an object of any size. `create`: as in `put`, decided at `commit`."""
        ...

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectFacts]:
        """Yield objects whose key begins with `prefix` and is greater than `after`, in ascending
        order of keys. Objects that are written or deleted meanwhile may or may not be included."""
        ...

    def directories(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the directories directly below `prefix`, in ascending order, without
        slashes.

        `prefix` is "" or ends with a slash.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored. Open readings are not affected."""
        ...


class Sweeps(Protocol):
    """Port of a store in which killed writers may leave unfinished objects."""

    def sweep(self, *, before: float, prefix: str = "") -> int:
        """Delete unfinished objects of killed writers below a directory; return the number of
        deleted objects.

        Only objects are deleted to which nothing was written since `before` (wall clock seconds).
        `prefix` is "" or ends with a slash. Clouds have lifecycle rules instead.
        """
        ...


class Probes(Protocol):
    """Port of a store whose guarantees depend on its location, such as the file system of a
    directory.
    """

    def probe(self) -> None:
        """Test whether the guarantees hold. Raises `StoreRefused`, whose message says what is
        missing.
        """
        ...


def sweep(store: Store, *, before: float, prefix: str = "") -> int:
    """Delete unfinished objects as `Sweeps.sweep`; return 0 if the store has nothing to sweep."""
    swept: Callable[..., int] | None = getattr(store, "sweep", None)
    return 0 if swept is None else swept(before=before, prefix=prefix)


def probe(store: Store) -> None:
    """Test the guarantees of a store, if they depend on its location (`Probes.probe`)."""
    probed: Callable[[], None] | None = getattr(store, "probe", None)
    if probed is not None:
        probed()


def check_key(key: str) -> str:
    """Return `key` after checking that every store accepts it. Raises `BadKey`.

    A key consists of names joined by slashes. A name has at most 200 ASCII letters, digits and
    `._=+@~-`, and begins with a letter, digit or `_`.
    """
    if len(key) > MAX_KEY_BYTES or not all(_NAME.fullmatch(name) for name in key.split("/")):
        raise errors.BadKey(
            f"{key[:200]!r} cannot be a key: use names of letters, digits and ._=+@~- that begin "
            f"with a letter or digit, joined by slashes, {MAX_KEY_BYTES} characters at most"
        )
    return key


def check_directory(prefix: str) -> str:
    """Return `prefix` after checking that it is valid for `Store.directories`. Raises `BadKey`."""
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise errors.BadKey(f"{prefix!r} is no directory: write {prefix + '/'!r}")
    return prefix


def check_prefix(prefix: str) -> str:
    """Return `prefix` after checking that keys can begin with it. Raises `BadKey`."""
    base, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(base)
    return prefix


def read_all(store: Store, key: str, *, most: int = 16 << 20) -> bytes:
    """Return the whole content of a small object. Raises `ObjectMissing`, and `StoreRefused` if it
    is larger than `most`.
    """
    with store.read(key) as reading:
        if reading.facts.bytes > most:
            raise errors.StoreRefused(
                f"{key} has {reading.facts.bytes} bytes: more than {most} are not read at once"
            )
        return b"".join(reading)


def clear(store: Store, prefix: str) -> int:
    """Delete all objects whose key begins with `prefix`; return the number of deleted objects."""
    count = 0
    while True:
        batch = [facts.key for facts, _ in zip(store.list(prefix), range(_BATCH), strict=False)]
        if not batch:
            return count
        store.delete(batch)
        count += len(batch)
