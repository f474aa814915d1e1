"""The key of a call whose result may be used again: what changes it, and what does not."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.data import local_blobs as blob_store
from kilnwork.sdk import cache_keys, options, serialization


@pytest.fixture
def blobs(tmp_path: Path) -> blob_store.Blobs:
    return blob_store.Blobs(tmp_path, durable=False)


def _made(source: str, name: str = "work", **known: Any) -> Callable[..., Any]:
    scope = dict(known)
    exec(source, scope)  # noqa: S102 - the same source in other places
    found: Callable[..., Any] = scope[name]
    return found


def _digest(blobs: blob_store.Blobs, source: str, *, of: str = "m:work") -> bytes:
    return cache_keys.function_digest(_made(source), of=of, blobs=blobs)


BODY = "def work(x, y=1, *, z=2):\n    return [x + y for _ in {1, 2}] if x in {'a', 'b'} else z\n"


def test_code_counts_and_not_its_place(blobs: blob_store.Blobs) -> None:
    first = _digest(blobs, BODY)
    assert _digest(blobs, "\n\n# a comment\n" + BODY) == first
    others = [
        BODY.replace("x + y", "x - y"),
        BODY.replace("y=1", "y=3"),
        BODY.replace("z=2", "z=3"),
        BODY.replace("'b'", "'c'"),
        BODY.replace("else z", "else y"),
    ]
    assert len({first, *(_digest(blobs, other) for other in others)}) == len(others) + 1
    assert _digest(blobs, BODY, of="m:other") != first


def test_values_in_a_closure_change_the_key(blobs: blob_store.Blobs) -> None:
    def outer(held: object) -> Callable[[], object]:
        def inner() -> object:
            return held

        return inner

    def digest(held: object) -> bytes:
        return cache_keys.function_digest(outer(held), of="f", blobs=blobs)

    assert digest([1]) == digest([1]) != digest([2])
    with pytest.raises(kiln.BadOption, match="pass such values as arguments"):
        digest(threading.Lock())


def test_function_not_written_in_python_is_refused(blobs: blob_store.Blobs) -> None:
    with pytest.raises(kiln.BadOption, match="needs a Python function"):
        cache_keys.function_digest(len, of="builtins:len", blobs=blobs)


def test_arguments_files_and_options_count(blobs: blob_store.Blobs) -> None:
    def key(*args: Any, environment: str | None = None, **changes: Any) -> bytes:
        given = options.changed(options.Options(), {"cache": 60, **changes}, of="f")
        arguments, _ = serialization.pack_arguments(args, {}, blobs)
        made = cache_keys.terms(b"f", given, environment=environment, arguments=arguments)
        assert made is not None
        return made.key

    first = key(1, "a")
    assert key(1, "a") == first
    assert key(1, "a", retries=3, priority=5, cache=5) == first
    assert key(b"x" * 100_000) == key(b"x" * 100_000) != key(b"y" * 100_000)
    others = [
        key(2, "a"),
        key(1.0, "a"),
        key(1, "a", None),
        key(1, "a", environment="sha256:1"),
        key(1, "a", env={"A": "b"}),
        key(1, "a", returns=2),
    ]
    assert len({first, *others}) == len(others) + 1
    assert cache_keys.terms(b"f", options.Options(), environment=None, arguments=None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("age", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), (1.5, 1.5)]
)
def test_an_age_is_a_number_of_seconds(age: str | float, seconds: float) -> None:
    assert options.checked("cache", age, of="f") == seconds
