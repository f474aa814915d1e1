"""The key of a call whose result may be used again: what changes it, and what does not."""

import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import attempts
from kilnwork.data import local_blobs as blob_store
from kilnwork.kit import ids
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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # The same code, names and constants in each pair, but for one thing.
        ("def work(a, b): return a", "def work(a):\n    return a\n    b = None"),
        ("def work(a, *, b, c): return a", "def work(a, *, b):\n    return a\n    c = None"),
        ("def work(a, b): return a", "def work(a, *b): return a"),
        ("def work(a): return a.real", "def work(a): return a.imag"),
        ("def work(a, b): return a", "def work(b, a): return b"),
        ("def work(a): return (lambda: 1)", "def work(a): return (lambda: 2)"),
        ("def work(a): return a in (1, 2)", "def work(a): return a in (1, 3)"),
        ("def work(a, b='1'): return a", "def work(a, b=1): return a"),
    ],
)
def test_each_part_of_the_code_changes_the_key(
    blobs: blob_store.Blobs, one: str, other: str
) -> None:
    assert _digest(blobs, one) == _digest(blobs, one)
    assert _digest(blobs, one) != _digest(blobs, other)


def test_order_of_a_constant_set_does_not_count(blobs: blob_store.Blobs) -> None:
    one, other = (f"def work(a): return a in {{{numbers}}}" for numbers in ("0, 8", "8, 0"))
    first, second = (_made(source).__code__.co_consts[-1] for source in (one, other))
    assert (first, list(first)) == (second, list(reversed(list(second))))
    assert _digest(blobs, one) == _digest(blobs, other)


def test_version_of_python_changes_the_key(
    blobs: blob_store.Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = _digest(blobs, BODY)
    another = types.SimpleNamespace(version_info=(3, 99, 0))
    monkeypatch.setattr("kilnwork.sdk.cache_keys.sys", another)
    assert _digest(blobs, BODY) != here


def test_future_in_a_closure_is_refused(blobs: blob_store.Blobs) -> None:
    class Pending:
        """Pickles as futures do."""

        def __reduce__(self) -> tuple[Any, ...]:
            serialization.note(ids.TaskId(bytes(16)))
            return int, ()

    held = Pending()

    def work() -> object:
        return held

    with pytest.raises(kiln.BadOption, match=r"^m:work: cache=: .* or hold futures"):
        cache_keys.function_digest(work, of="m:work", blobs=blobs)


def test_large_values_in_a_closure_change_the_key(blobs: blob_store.Blobs) -> None:
    def outer(held: bytes) -> Callable[[], object]:
        return lambda: held

    def digest(held: bytes) -> bytes:
        return cache_keys.function_digest(outer(held), of="f", blobs=blobs)

    one, other = b"x" * 500_000, b"y" * 500_000
    assert digest(one) == digest(one) != digest(other)


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


def test_each_part_of_the_packed_arguments_changes_the_key() -> None:
    def key(arguments: attempts.Payload, *, function: bytes = b"f") -> bytes:
        given = options.changed(options.Options(), {"cache": 60}, of="f")
        made = cache_keys.terms(function, given, environment=None, arguments=arguments)
        assert made is not None
        return made.key

    payload = attempts.Payload
    digest, another = b"d" * 32, b"e" * 32
    keys = [
        key(payload(attempts.JSON, b"1")),
        key(payload(attempts.JSON, b"1"), function=b"g"),
        key(payload(attempts.JSON, b"2")),
        key(payload(attempts.PICKLE, b"1")),
        key(payload(attempts.JSON, b"", digest, 8)),
        key(payload(attempts.JSON, b"", another, 8)),
        key(payload(attempts.JSON, b"1", None, 0, (digest,))),
        key(payload(attempts.JSON, b"1", None, 0, (another,))),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("age", [45, 0.5])
def test_maximum_age_of_a_reused_result_is_that_of_the_option(age: float) -> None:
    given = options.changed(options.Options(), {"cache": age}, of="f")
    arguments = attempts.Payload(attempts.JSON, b"[[],{}]")
    made = cache_keys.terms(b"f", given, environment=None, arguments=arguments)
    assert made is not None
    assert (made.seconds, len(made.key)) == (age, 32)


@pytest.mark.parametrize(
    ("age", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), (1.5, 1.5)]
)
def test_an_age_is_a_number_of_seconds(age: str | float, seconds: float) -> None:
    assert options.checked("cache", age, of="f") == seconds
