"""Values of random programs, and a plain form in which they are compared.

Used by the tasks and by the oracle, so it must not depend on kilnwork.
"""

import hashlib
import json
from typing import Any

USER_ERRORS: tuple[str, ...] = ("Boom", "ValueError", "KeyError", "OSError")
"""Errors whose text is compared too; for other errors only the class is."""


class Boom(Exception):
    """An error of our own, with an attribute that must be transferred."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


def plain(value: Any) -> Any:
    """Return a value as JSON that distinguishes types."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return ["bytes", len(data), hashlib.sha1(data).hexdigest()[:12]]  # noqa: S324 no secret
    if type(value).__name__ == "Ref":
        return plain(value.value())
    if isinstance(value, BaseException):
        return plain_error(value)
    if isinstance(value, dict):
        return ["dict", sorted([[str(k), plain(v)] for k, v in value.items()], key=repr)]
    if isinstance(value, set | frozenset):
        return ["set", sorted((plain(item) for item in value), key=repr)]
    if isinstance(value, list | tuple):
        return [type(value).__name__, [plain(item) for item in value]]
    raise TypeError(f"no plain form of {type(value).__name__}")


def plain_error(error: BaseException) -> list[Any]:
    """Return the class of an error, and the text of errors that programs raise themselves."""
    name = type(error).__name__
    text = str(error.args[0]) if name in USER_ERRORS and error.args else ""
    if isinstance(error, Boom):
        text += f"/{error.code}"
    return ["error", name, text]


def combine(name: str, parts: list[Any]) -> int:
    """Return a number that depends on the computing call and all of its inputs."""
    text = json.dumps([name, parts], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def shaped(shape: str, number: int, size: int) -> Any:
    """Return a value of some type, made from a number."""
    match shape:
        case "int":
            return number
        case "str":
            return f"text-{number}-ü"
        case "none":
            return None
        case "float":
            return number / 7
        case "tuple":
            return (number, str(number), (number % 7,))
        case "dict":
            return {"n": number, "more": [number % 3, None, True], "f": 0.5}
        case "set":
            return {number % 5, number % 11, -1}
        case "list":
            return [number + at for at in range(size)]
        case "bytes":
            return content(str(number), size)
    raise ValueError(shape)


def content(name: str, size: int) -> bytes:
    """Return bytes that only this name has."""
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def raised(how: str, name: str) -> Exception:
    """Return the error that a call of this id raises."""
    match how:
        case "Boom":
            return Boom(f"boom {name}", code=len(name))
        case "ValueError":
            return ValueError(f"bad {name}")
        case "KeyError":
            return KeyError(f"key {name}")
    return OSError(f"os {name}")
