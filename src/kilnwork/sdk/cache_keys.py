"""Cache keys of calls (option `cache=`): a call may reuse an earlier result with the same key.

Used by `sdk.task`. Two calls have the same key if these are equal: the function's name and its own
code with defaults and closure, the version of Python (major and minor), the code shipped with it,
its arguments, and the options `returns` and `env`. Not part of the key: functions that it calls,
global variables, files, and the environment of the worker.
"""

import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.kit import digests
from kilnwork.sdk import errors, options, pickle_encoding, serialization

_encode = msgspec.msgpack.encode


def function_digest(
    function: Callable[..., Any], *, of: str, blobs: pickle_encoding.Blobs
) -> bytes:
    """Return the digest of a function's name, code, defaults and closure.

    `of`: the name of the function, for error messages. Raises BadOption for a function that is not
    written in Python, or whose defaults or closure cannot be pickled.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        raise errors.BadOption(f"{of}: cache=: needs a Python function, not {function!r}")
    closure = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    defaults = getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)
    try:
        given, needs = serialization.pack_arguments((closure, defaults), {}, blobs)
    except errors.NotPicklable as error:
        raise errors.BadOption(_UNCLEAR.format(of)) from error
    if needs:
        raise errors.BadOption(_UNCLEAR.format(of))
    python = repr(sys.version_info[:2]).encode()
    parts = [python, of.encode(), *_parts(code), given.data, given.digest or b""]
    return digests.sha256_of([_encode(parts)])


_UNCLEAR = (
    "{}: cache=: its defaults or closure cannot be pickled, or hold futures, so that it is unknown "
    "whether they are the same: pass such values as arguments"
)


def _parts(code: CodeType) -> Iterator[bytes]:
    """Yield the parts of a code object that determine its behaviour, without file name and line
    numbers.
    """
    yield code.co_code
    yield repr((code.co_name, code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode()
    yield repr((code.co_names, code.co_varnames, code.co_freevars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
        elif isinstance(constant, frozenset):  # its order differs between processes
            yield repr(sorted(map(repr, constant))).encode()
        else:
            yield repr(constant).encode()


def terms(
    function: bytes,
    given: options.Options,
    *,
    environment: str | None,
    arguments: attempts.Payload,
) -> calls.Cache | None:
    """Return the cache key of a call and the maximum age of a reused result, or None without
    `cache`.

    `function`: the digest of the function. `environment`: the digest of the code shipped with it,
    if any.
    """
    if given.cache is None:
        return None
    of_call = _encode((
        function,
        environment,
        given.returns,
        given.env,
        arguments.media_type,
        arguments.data,
        arguments.digest,
        arguments.blobs,
    ))  # fmt: skip
    return calls.Cache(digests.sha256_of([of_call]), given.cache)
