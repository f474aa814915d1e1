"""Pickles of values that JSON cannot represent, as bytes or as a blob.

Used by `sdk.serialization`, `sdk.failures` and `sdk.values`. Pickle protocol 5; cloudpickle only
for objects that plain pickle cannot refer to from another process (`__main__`, lambdas, local
functions), and imported only then. Large buffers (NumPy arrays and similar objects) are never
copied: the blob store gets their memory unchanged, and reading gives views of the mapped file.

A blob is a pickle, or, with buffers out of band: `KILN`, u32 number of buffers, u64 length of the
pickle, u64 length of each buffer (little-endian); the pickle; then each buffer at the next multiple
of 64 bytes, so that vector instructions may be used on it.
"""

import pickle
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from kilnwork.api import attempts
from kilnwork.data import pickled_blob_references
from kilnwork.kit import ids
from kilnwork.sdk import by_value, errors, unpicklable_parts

PROTOCOL = 5
OUT_OF_BAND_BYTES = attempts.MAX_INLINE_BYTES
"""Size from which a buffer is stored next to the pickle without a copy; smaller buffers are part of
the pickle."""

_ALIGNMENT = 64
_MAGIC = b"KILN"
_HEAD = struct.Struct("<4sIQ")
_MAX_FRAME_BYTES = 256 * 1024
"""Maximum size of a part of a pickle that may name a class: pickle writes frames of 64 KiB, and
larger values as parts of their own."""

_NOT_OURS = (MemoryError, errors.KilnError)
"""Errors that are not caused by the pickled value itself; for example, a future in it may have lost
its session."""

Part = bytes | bytearray | memoryview
Resolve = Callable[[ids.TaskId, int | None], Any]


class Blobs(Protocol):
    """A store for values over 64 KiB (`data.local_blobs.Blobs`)."""

    def put(self, parts: Sequence[Part]) -> tuple[bytes, int]:
        """Store the parts as one blob; return its digest and size."""
        ...

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        """Return the bytes of a blob; with `private`, as writable copy-on-write memory."""
        ...


class _Around(threading.local):
    """State of the pickling or unpickling in progress on this thread; the futures in a value use
    it.
    """

    needs: list[ids.TaskId] | None = None
    resolve: Resolve | None = None
    blobs: Blobs | None = None


_around = _Around()


def note(task: ids.TaskId) -> None:
    """Record that the call whose arguments are being pickled needs the result of a task.

    Called when a future in the arguments is pickled.
    """
    if _around.needs is not None:
        _around.needs.append(task)


def resolver() -> Resolve | None:
    """Return the function that returns the value of a future that is being unpickled.

    None: the future stays a future.
    """
    return _around.resolve


def resolving_blobs() -> Blobs | None:
    return _around.blobs


class _Parts:
    """A writable file object that collects the parts of a pickle without joining or copying
    them.
    """

    __slots__ = ("parts", "write")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.write = self.parts.append


class Dumped(NamedTuple):
    """A pickle in parts. `blobs`: the digests of the blobs that the value refers to."""

    parts: Sequence[Part]
    blobs: tuple[bytes, ...]


def dump(
    value: Any, *, named: unpicklable_parts.Named, needs: list[ids.TaskId] | None = None
) -> Dumped:
    """Pickle a value and add the task ids of the futures in it to `needs`.

    Raises NotPicklable. `named` yields the parts of the value with their names in the error.
    """
    before, _around.needs = _around.needs, needs
    try:
        with pickled_blob_references.noting() as digests:
            parts = _dump(value, named)
    finally:
        _around.needs = before
    return Dumped(parts, tuple(dict.fromkeys(digests)) if digests else ())


def _dump(value: Any, named: unpicklable_parts.Named) -> Sequence[Part]:
    if not _by_value_wanted():
        try:
            parts, buffers = _pickled(pickle.Pickler, value)
            if not _names_main(parts):
                return _enveloped(parts, buffers)
        except _NOT_OURS:
            raise
        except Exception:  # noqa: BLE001, S110 - cloudpickle tries, and tells what is wrong
            pass
    if _around.needs:
        _around.needs.clear()
    return dump_by_value(value, named=named)


def dump_by_value(value: Any, *, named: unpicklable_parts.Named) -> Sequence[Part]:
    """Pickle a value, with the functions and classes in it by value if workers cannot import them.

    Otherwise as `dump`.
    """
    pickler = by_value.pickler()
    try:
        return _enveloped(*_pickled(pickler, value))
    except _NOT_OURS:
        raise
    except Exception as error:  # noqa: BLE001 - any user's __reduce__
        path, cause = unpicklable_parts.find(
            named(), error, attempt=lambda part: _attempt(pickler, part)
        )
        raise errors.NotPicklable(
            f"{path}: {unpicklable_parts.describe(cause)}", path=path
        ) from cause


def _attempt(pickler: Any, value: Any) -> Exception | None:
    before, _around.needs = _around.needs, None
    try:
        _pickled(pickler, value)
    except _NOT_OURS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        return error
    finally:
        _around.needs = before
    return None


def _pickled(pickler: Any, value: Any) -> tuple[list[Part], list[memoryview]]:
    file = _Parts()
    buffers: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    pickler(file, PROTOCOL, buffer_callback=in_band).dump(value)
    return file.parts, buffers


def _by_value_wanted() -> bool:
    """Return whether any module is registered with cloudpickle to be pickled by value.

    The user or `pack_by_value` registers modules that no worker can import.
    """
    cloudpickle = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _names_main(parts: Sequence[Part]) -> bool:
    """Return whether a pickle may refer to `__main__` by name.

    In a worker, `__main__` is another module.
    """
    for part in parts:  # noqa: SIM110 - twice as fast as any()
        if len(part) <= _MAX_FRAME_BYTES and b"__main__" in part:
            return True
    return False


def _enveloped(parts: list[Part], buffers: list[memoryview]) -> Sequence[Part]:
    if not buffers:
        return parts
    stream = sum(map(len, parts))
    sizes = [buffer.nbytes for buffer in buffers]
    head = _HEAD.pack(_MAGIC, len(buffers), stream) + struct.pack(f"<{len(sizes)}Q", *sizes)
    whole: list[Part] = [head, *parts]
    at = len(head) + stream
    for buffer in buffers:
        padding = -at % _ALIGNMENT
        whole += [bytes(padding), buffer]
        at += padding + buffer.nbytes
    return whole


def load(data: Part) -> Any:
    """Unpickle the value in `data`, the joined parts of a `dump`; its arrays are views of `data`.

    Raises whatever unpickling raises; the error about a missing module contains a remedy.
    """
    try:
        if bytes(data[:4]) == _MAGIC:
            return _load_with_buffers(memoryview(data))
        return pickle.loads(data)  # noqa: S301 - from our own trust domain: one cluster
    except ModuleNotFoundError as error:
        error.add_note(
            f"The process that needs this value cannot import {error.name!r}. If that is a worker: "
            "install it there, or ship it, kiln.connect(…, working_dir='.') or modules=[…]"
        )
        raise


def _load_with_buffers(view: memoryview) -> Any:
    _, count, stream = _HEAD.unpack_from(view)
    sizes = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    at = _HEAD.size + 8 * count
    pickled = view[at : at + stream]
    at += stream
    buffers = []
    for size in sizes:
        at += -at % _ALIGNMENT
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301 - as above


def load_resolving(data: Part, resolve: Resolve, blobs: Blobs) -> Any:
    """Unpickle a value as `load` does, but replace each future in it by the value from `resolve`.

    Futures in values that `resolve` itself loads meanwhile stay futures.
    """

    def alone(task: ids.TaskId, index: int | None) -> Any:
        _around.resolve = None
        try:
            return resolve(task, index)
        finally:
            _around.resolve = alone

    before = _around.resolve, _around.blobs
    _around.resolve, _around.blobs = alone, blobs
    try:
        return load(data)
    finally:
        _around.resolve, _around.blobs = before


@contextmanager
def apart() -> Iterator[None]:
    """Keep futures as futures in values that are unpickled within this block.

    Such a value may be unpickled while the arguments of a call are, in which futures are replaced.
    """
    before, _around.resolve = _around.resolve, None
    try:
        yield
    finally:
        _around.resolve = before
