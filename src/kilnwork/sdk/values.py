"""Values that are stored once and used by many tasks (`put`, `get`, `Ref`), and parts of files
(`split`).

Public as `kilnwork.NAME`. A `Ref` stands for a stored value, as a future stands for a result that
may not exist yet: as an argument, at any depth, it becomes the value. The blob is kept while a
process holds the Ref, or while a task in the journal refers to it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from kilnwork.api import attempts
from kilnwork.data import blob_renewal, file_splitting, parts, pickled_blob_references
from kilnwork.data import local_blobs as blob_store
from kilnwork.sdk import errors as sdk_errors
from kilnwork.sdk import futures, pickle_encoding, serialization, session, waiting

T = TypeVar("T")
K = TypeVar("K")

INLINE_BYTES = 1024
"""Maximum size of a value that is sent inside its Ref, since a file would cost more."""


class Ref(Generic[T]):
    """A reference to a value that `put` has stored; small, and picklable.

    `kiln.get(ref)` returns the value.
    """

    __slots__ = ("__weakref__", "_payload")

    def __init__(self, payload: attempts.Payload) -> None:
        self._payload = payload
        if payload.digests:
            blob_renewal.hold(self, payload.digests)

    @property
    def size(self) -> int:
        """The size of the stored value in bytes."""
        return self._payload.size or len(self._payload.data)

    def __reduce__(self) -> tuple[Any, ...]:
        pickled_blob_references.note(self._payload.digests)
        it = self._payload
        return rebuild, (it.media_type, it.data, it.digest, it.size, it.blobs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ref):
            return NotImplemented
        return self._payload == other._payload

    def __hash__(self) -> int:
        return hash(self._payload)

    def __repr__(self) -> str:
        digest = self._payload.digest
        where = "inline" if digest is None else blob_store.text(digest)[: len("sha256:") + 12]
        return f"<Ref {where}, {self.size} bytes>"

    def value(self) -> T:
        """Return the value; see `get`."""
        return cast(T, _unpacked(self._payload))


def put(value: T) -> Ref[T]:
    """Store a value once, to pass it to many tasks; return a Ref to it.

    Raises NoSession, NotPicklable, `BlobNotWritten`, and TypeError for a future, which needs no
    `put`. A Ref is returned unchanged. The value must not be changed while this runs; later changes
    do not affect the stored value.
    """
    if isinstance(value, Ref):
        return value
    if isinstance(value, futures.Future):
        raise TypeError(
            "a future needs no put: give it to as many tasks as you like, it is computed once"
        )
    here = session.current().blobs
    payload = serialization.pack_value(value, here)
    if payload.digest is None and len(payload.data) > INLINE_BYTES:
        digest, size = here.put((payload.data,))
        payload = attempts.Payload(payload.media_type, b"", digest, size, payload.blobs)
    return Ref(payload)


@overload
def get(item: Ref[T], timeout: float | None = None) -> T: ...
@overload
def get(item: futures.Future[T], timeout: float | None = None) -> T: ...
@overload
def get(item: Sequence[Ref[T] | futures.Future[T]], timeout: float | None = None) -> list[T]: ...
@overload
def get(
    item: Mapping[K, Ref[T] | futures.Future[T]], timeout: float | None = None
) -> dict[K, T]: ...
def get(item: Any, timeout: float | None = None) -> Any:
    """Return the value of a Ref or the result of a future, or all those of a list, tuple or dict.

    Lists and tuples become lists. Waits for all futures, at most `timeout` seconds, then raises
    TimeoutError; raises the error of a task as soon as one has failed. Raises `BlobMissing`,
    `BlobDamaged`, NoSession.
    """
    waited = list(_futures(item))
    if waited:
        done, left = waiting.wait(waited, timeout, waiting.FIRST_EXCEPTION)
        for each in waited:
            if each in done and each.failed():
                each.result()
        if left:
            raise TimeoutError(f"{len(left)} of {len(waited)} futures are not done")
    return _values(item)


def split(
    path: str | os.PathLike[str],
    n: int,
    *,
    number_lines: bool = True,
    encoding: str = "utf-8",
    errors: str = "strict",
    ship: bool | None = None,
) -> list[parts.Part]:
    """Split a file into at most `n` parts of whole lines, about equal in bytes, in order.

    Each part is a small value to pass to a task, which iterates over its lines. No part is empty,
    and together they are the whole file. Lines are counted on the way, so that `part.first_line`
    (from 1) is set. With `number_lines=False` and no copy, it is None, and only a small amount of
    the file is read. `encoding`, `errors`: how lines are decoded, as for `open`. `ship`: store a
    copy of the file for workers that cannot see it; by default a copy is stored if the session's
    workers may be on other machines. Raises `NotSplittable` for compressed files, and NoSession if
    a copy is to be stored without a session.
    """
    if ship is None:
        ship = _elsewhere()
    copy = session.current().blobs if ship else None
    return file_splitting.split(
        path, n, number_lines=number_lines, encoding=encoding, errors=errors, copy=copy
    )


def rebuild(
    media_type: str, data: bytes, digest: bytes | None, size: int, blobs: tuple[bytes, ...]
) -> Any:
    """Unpickle a Ref: in the arguments of a call as its value, elsewhere as a Ref."""
    payload = attempts.Payload(media_type, data, digest, size, blobs)
    store = serialization.resolving_blobs()
    if serialization.resolver() is None or store is None:
        return Ref(payload)
    with pickle_encoding.apart():
        return serialization.unpack_value(payload, store)


def _elsewhere() -> bool:
    """Return whether the workers of the session may be unable to see our files."""
    try:
        return not session.current().shares_files
    except sdk_errors.NoSession:
        return False


def _unpacked(payload: attempts.Payload) -> Any:
    store: Any = None if payload.digest is None else session.current().blobs
    return serialization.unpack_value(payload, store)


def _futures(item: Any) -> Iterable[futures.Future[Any]]:
    if isinstance(item, futures.Future):
        yield item
    elif isinstance(item, Mapping):
        for each in item.values():
            yield from _futures(each)
    elif _is_list(item):
        for each in item:
            yield from _futures(each)
    elif not isinstance(item, Ref):
        raise TypeError(
            f"cannot get a {type(item).__name__}: give a Ref, a future, or a list, tuple or dict "
            "of them"
        )


def _values(item: Any) -> Any:
    if isinstance(item, Ref):
        return item.value()
    if isinstance(item, futures.Future):
        return item.result()
    if isinstance(item, Mapping):
        return {name: _values(each) for name, each in item.items()}
    return [_values(each) for each in item]


def _is_list(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str | bytes | bytearray | memoryview)
