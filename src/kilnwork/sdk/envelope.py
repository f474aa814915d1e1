"""Pickles: values that JSON does not carry, as bytes or as a blob, and back.

Used by `sdk.pickling` and `sdk.failures`. Pickle 5; cloudpickle only for what plain pickle cannot
name from another process (`__main__`, lambdas, local functions), and imported only then. Large
buffers (NumPy arrays and their like) are never copied: they are handed to the blob store as the
memory they are, and read back as views of the mapped file.

A blob is a pickle, or, with buffers out of band: `KILN`, u32 number of buffers, u64 length of the
pickle, u64 length of each buffer (little-endian); the pickle; each buffer from the next multiple of
64 bytes on, so that vector instructions may be used on it.
"""

import pickle
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from kilnwork.api import attempts
from kilnwork.data import references
from kilnwork.kit import ids
from kilnwork.sdk import by_value, culprits, errors

PROTOCOL = 5
OUT_OF_BAND_BYTES = attempts.MAX_INLINE_BYTES
"""Buffers from this size on stay where they are; smaller ones are part of the pickle."""

_ALIGNMENT = 64
_MAGIC = b"KILN"
_HEAD = struct.Struct("<4sIQ")
_MAX_FRAME_BYTES = 256 * 1024
"""Pickle writes frames of 64 KiB and larger values on their own: longer parts name no class."""

_NOT_OURS = (MemoryError, errors.KilnError)
"""Errors that say nothing about a value: a future in it may have lost its session, say."""

Part = bytes | bytearray | memoryview
Resolve = Callable[[ids.TaskId, int | None], Any]


class Blobs(Protocol):
    """Where values over 64 KiB go (`data.blobs.Blobs`)."""

    def put(self, parts: Sequence[Part]) -> tuple[bytes, int]:
        """Keep the parts as one blob; its digest and size."""
        ...

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        """The blob. `private`: in memory of its own, so that it may be written to (by no copy:
        copy-on-write)."""
        ...


class _Around(threading.local):
    """What a future meets while it is pickled or unpickled on this thread."""

    needs: list[ids.TaskId] | None = None
    resolve: Resolve | None = None
    blobs: Blobs | None = None


_around = _Around()


def note(task: ids.TaskId) -> None:
    """A future is being pickled: the call it is an argument of needs its task."""
    if _around.needs is not None:
        _around.needs.append(task)


def resolver() -> Resolve | None:
    """What turns a future that is being unpickled into its value; None: it stays a future."""
    return _around.resolve


def resolving_blobs() -> Blobs | None:
    return _around.blobs


class _Parts:
    """A file that keeps what pickle writes, unjoined: large values stay the objects they are."""

    __slots__ = ("parts", "write")

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.write = self.parts.append


class Dumped(NamedTuple):
    """A pickle in parts. `blobs`: digests of the blobs that the value refers to."""

    parts: Sequence[Part]
    blobs: tuple[bytes, ...]


def dump(value: Any, *, named: culprits.Named, needs: list[ids.TaskId] | None = None) -> Dumped:
    """Pickle a value; ids of the tasks of futures in it are added to `needs`.

    Raises NotPicklable; `named` gives the parts of the value with the names it uses for them.
    """
    before, _around.needs = _around.needs, needs
    try:
        with references.noting() as digests:
            parts = _dump(value, named)
    finally:
        _around.needs = before
    return Dumped(parts, tuple(dict.fromkeys(digests)) if digests else ())


def _dump(value: Any, named: culprits.Named) -> Sequence[Part]:
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


def dump_by_value(value: Any, *, named: culprits.Named) -> Sequence[Part]:
    """As `dump`, with what cannot be imported elsewhere taken along."""
    pickler = by_value.pickler()
    try:
        return _enveloped(*_pickled(pickler, value))
    except _NOT_OURS:
        raise
    except Exception as error:  # noqa: BLE001 - any user's __reduce__
        path, cause = culprits.find(named(), error, attempt=lambda part: _attempt(pickler, part))
        raise errors.NotPicklable(f"{path}: {culprits.describe(cause)}", path=path) from cause


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
    """The user (or `pack_by_value`) has registered modules with cloudpickle that no worker can
    import."""
    cloudpickle = sys.modules.get("cloudpickle")
    return cloudpickle is not None and bool(cloudpickle.list_registry_pickle_by_value())


def _names_main(parts: Sequence[Part]) -> bool:
    """Whether a pickle may refer to `__main__` by name, which is another module in a worker."""
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
    """The value of what `dump` gave, joined. Arrays in it are views of `data`.

    Raises whatever unpickling raises; a missing module says what to do.
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
    """As `load`; futures in it become what `resolve` gives.

    What `resolve` loads meanwhile is none of its business: futures in there stay futures.
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
    """What is loaded inside is no part of the arguments around it: futures in it stay futures."""
    before, _around.resolve = _around.resolve, None
    try:
        yield
    finally:
        _around.resolve = before
