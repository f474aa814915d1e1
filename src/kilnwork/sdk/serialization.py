"""Serialization of arguments, results, errors and functions between drivers and slots.

Used by sessions (arguments out, results in), by the worker's slots (arguments in, results out) and
by `put`. Dispatches to `exact_json` (JSON, where it is exact), `pickle_encoding` (pickle, buffers
out of band) and `failures` (errors). Values over 64 KiB become blobs. Not a general serializer:
both ends are in one trust domain, and the server never reads a pickle.

Futures may be anywhere in arguments: `pack_arguments` returns the tasks that the call needs, and
`unpack_arguments` replaces the futures by values. In a result they stay futures.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.kit import ids
from kilnwork.sdk import exact_json, failures, pickle_encoding

Payload = attempts.Payload

note = pickle_encoding.note
resolver = pickle_encoding.resolver
resolving_blobs = pickle_encoding.resolving_blobs
pack_error = failures.pack_error
unpack_error = failures.unpack_error
failure = failures.failure

_decode = msgspec.json.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode
_payloads = msgspec.msgpack.Decoder(list[Payload]).decode
_NONE = Payload(attempts.JSON, b"null")


def pack_arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], blobs: pickle_encoding.Blobs
) -> tuple[Payload, tuple[ids.TaskId, ...]]:
    """Return the packed arguments of a call, and the tasks whose futures they contain at any depth.

    The payload is JSON `[[…], {…}]` if JSON represents the arguments exactly, else a pickle. Raises
    NotPicklable, which names the part that cannot be pickled.
    """
    data = exact_json.encode_call(args, kwargs)
    if data is not None:
        if len(data) <= attempts.MAX_INLINE_BYTES:
            return Payload(attempts.JSON, data), ()
        return _stored(attempts.JSON, pickle_encoding.Dumped((data,), ()), blobs), ()
    needs: list[ids.TaskId] = []
    whole = args, dict(kwargs)
    dumped = pickle_encoding.dump(whole, named=lambda: _arguments(*whole), needs=needs)
    return _packed(attempts.PICKLE, dumped, blobs), tuple(dict.fromkeys(needs)) if needs else ()


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((f"arguments[{index}]", value) for index, value in enumerate(args))
    yield from ((f"arguments[{name!r}]", value) for name, value in kwargs.items())


def unpack_arguments(
    payload: Payload, blobs: pickle_encoding.Blobs, resolve: pickle_encoding.Resolve
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the unpacked arguments, with each future in them replaced by `resolve(task, index)`.

    `index`: the position of the item for a future of one item of a result, None for a whole result.
    Raises whatever unpickling raises, such as ModuleNotFoundError.
    """
    if payload.media_type == attempts.JSON:
        args, kwargs = _decode(_bytes(payload, blobs))
        return tuple(args), kwargs
    args, kwargs = pickle_encoding.load_resolving(_bytes(payload, blobs), resolve, blobs)
    return args, kwargs


def pack_value(value: Any, blobs: pickle_encoding.Blobs) -> Payload:
    """Return a payload that contains a single value: a result, or the argument of `put`.

    Raises NotPicklable.
    """
    if value is None:
        return _NONE
    data = exact_json.encode(value)
    if data is not None:
        if len(data) <= attempts.MAX_INLINE_BYTES:
            return Payload(attempts.JSON, data)
        return _stored(attempts.JSON, pickle_encoding.Dumped((data,), ()), blobs)
    return _packed(
        attempts.PICKLE, pickle_encoding.dump(value, named=lambda: [("result", value)]), blobs
    )


def unpack_value(payload: Payload, blobs: pickle_encoding.Blobs) -> Any:
    """Return the value in a payload; the value of an unknown media type is its bytes.

    Raises whatever unpickling raises.
    """
    data = _bytes(payload, blobs)
    if payload.media_type == attempts.JSON:
        return _decode(data)
    if payload.media_type == attempts.PICKLE:
        return pickle_encoding.load(data)
    if payload.media_type == attempts.STREAM:
        return [unpack_value(each, blobs) for each in _payloads(data)]
    return bytes(data)


def pack_stream(payloads: Sequence[Payload], blobs: pickle_encoding.Blobs) -> Payload:
    """Return the payload of a generator's result, made of the payloads of the values it has
    yielded.
    """
    held = [digest for each in payloads for digest in each.digests]
    dumped = pickle_encoding.Dumped((_encode(payloads),), tuple(dict.fromkeys(held)))
    return _packed(attempts.STREAM, dumped, blobs)


def _bytes(payload: Payload, blobs: pickle_encoding.Blobs) -> pickle_encoding.Part:
    if payload.digest is None:
        return payload.data
    return blobs.get(payload.digest, private=payload.media_type == attempts.PICKLE)


def _packed(
    media_type: str, dumped: pickle_encoding.Dumped, blobs: pickle_encoding.Blobs
) -> Payload:
    parts = dumped.parts
    if len(parts) == 1 and len(parts[0]) <= attempts.MAX_INLINE_BYTES:
        return Payload(media_type, bytes(parts[0]), blobs=dumped.blobs)
    if sum(map(len, parts)) <= attempts.MAX_INLINE_BYTES:
        return Payload(media_type, b"".join(parts), blobs=dumped.blobs)
    return _stored(media_type, dumped, blobs)


def _stored(
    media_type: str, dumped: pickle_encoding.Dumped, blobs: pickle_encoding.Blobs
) -> Payload:
    digest, size = blobs.put(dumped.parts)
    return Payload(media_type, b"", digest, size, dumped.blobs)


# functions


def pack_by_value(held: Any, function: Callable[..., Any], *, along: bool) -> bytes:
    """Return the pickle of `held`, which is the function or an object that contains it.

    `along`: also pickle everything else of the function's module by value from now on, because
    workers cannot import the module. Raises NotPicklable, which names the global or closure
    variable that fails.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "__main__")
    if along and module is not None and module.__name__ != "__main__":
        import cloudpickle  # noqa: PLC0415 - 25 ms that few programs need

        cloudpickle.register_pickle_by_value(module)
    parts = pickle_encoding.dump_by_value(held, named=lambda: [(_short_name(function), function)])
    return b"".join(parts)


def taken_along(module: str) -> bool:
    """Return whether the functions of a module are pickled by value, not by name.

    See `pack_by_value`.
    """
    cloudpickle = sys.modules.get("cloudpickle")
    return cloudpickle is not None and module in cloudpickle.list_registry_pickle_by_value()


def load_function(data: pickle_encoding.Part) -> Any:
    return pickle_encoding.load(data)


def function_name(function: Callable[..., Any]) -> str:
    """Return `module:qualified.name` of a function, cut to 512 characters.

    Workers import the function by this name if it is importable; otherwise it only names the
    function to people.
    """
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", None) or "__main__"
    return f"{module}:{_short_name(function)}"[:512]


def _short_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def located(function: Callable[..., Any]) -> Any:
    """Return the object that a worker gets when it imports the function by name, or None.

    None: a worker cannot import it.
    """
    if not findable(function):
        return None
    found: Any = sys.modules.get(function.__module__)
    for step in _short_name(function).split("."):
        found = getattr(found, step, None)
    return found


def findable(function: Callable[..., Any]) -> bool:
    """Return whether a process with our `sys.path` could import the module of a function."""
    module = getattr(function, "__module__", None)
    return module not in (None, "__main__", "__mp_main__") and _findable(module)


@lru_cache(maxsize=1024)
def _findable(module: str) -> bool:
    """Return whether a process with our `sys.path` would find exactly this module by its name."""
    here = sys.modules.get(module)
    if here is None:
        return False
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    path = getattr(here, "__file__", None)
    for finder in sys.meta_path:
        spec = finder.find_spec(top, None)
        if spec is not None:
            roots = [spec.origin, *(spec.submodule_search_locations or ())]
            return path is None or any(root and path.startswith(root) for root in roots)
    return False
