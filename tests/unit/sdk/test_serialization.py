"""Arguments, results and functions survive the way to another process."""

import dataclasses
import importlib
import json
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilnwork.api import attempts
from kilnwork.data import local_blobs as blob_store
from kilnwork.data import pickled_blob_references
from kilnwork.kit import ids
from kilnwork.sdk import errors, serialization
from support import python_subprocess

np: Any = importlib.import_module("numpy")
"""Its stubs would take mypy longer than all our code."""

ONE, TWO = ids.TaskId(b"1" * 16), ids.TaskId(b"2" * 16)


@pytest.fixture
def blobs(tmp_path: Path) -> blob_store.Blobs:
    return blob_store.Blobs(tmp_path / "blobs", durable=False)


class Pending:
    """Pickles as futures do."""

    def __init__(self, task: ids.TaskId, index: int | None = None) -> None:
        self.task = task
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        serialization.note(self.task)
        return rebuild, (self.task, self.index)


def rebuild(task: ids.TaskId, index: int | None) -> Any:
    resolve = serialization.resolver()
    return Pending(task, index) if resolve is None else resolve(task, index)


@dataclasses.dataclass
class Box:
    content: Any


def no_futures(task: ids.TaskId, index: int | None) -> Any:
    raise AssertionError("there are no futures in these arguments")


def back(payload: attempts.Payload, blobs: blob_store.Blobs) -> Any:
    """What the other side gets: the payload as it is after a journey."""
    packed = msgspec.msgpack.encode(payload)
    return serialization.unpack_value(msgspec.msgpack.decode(packed, type=attempts.Payload), blobs)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary()
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.booleans(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(), max_size=1)
        | inner.map(Box)
    ),
    max_leaves=15,
)


@settings(max_examples=150)
@given(value=VALUES, named=st.dictionaries(st.text(max_size=4), VALUES, max_size=2))
def test_every_value_comes_back_equal_and_of_its_type(
    value: Any, named: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = blob_store.Blobs(tmp_path_factory.getbasetemp() / "shared", durable=False)
    assert repr(back(serialization.pack_value(value, blobs), blobs)) == repr(value)
    payload, needs = serialization.pack_arguments((value, 1), named, blobs)
    args, kwargs = serialization.unpack_arguments(payload, blobs, no_futures)
    assert (repr(args), repr(kwargs), needs) == (repr((value, 1)), repr(named), ())


def test_plain_arguments_are_json_that_people_can_read(blobs: blob_store.Blobs) -> None:
    payload, needs = serialization.pack_arguments(
        (1, "a", None), {"deep": {"b": [1.5, True]}}, blobs
    )
    assert (payload.media_type, needs) == (attempts.JSON, ())
    assert json.loads(payload.data) == [[1, "a", None], {"deep": {"b": [1.5, True]}}]


def test_futures_are_found_and_replaced_at_any_depth(blobs: blob_store.Blobs) -> None:
    pending = Pending(ONE)
    args = ([pending, 1], {"k": (Pending(TWO, 3), Box(pending))})
    payload, needs = serialization.pack_arguments(args, {"named": Pending(TWO)}, blobs)
    assert needs == (ONE, TWO)
    values = {(ONE, None): "one", (TWO, None): "two", (TWO, 3): "two, third"}
    got, named = serialization.unpack_arguments(payload, blobs, lambda *asked: values[asked])
    assert got == (["one", 1], {"k": ("two, third", Box("one"))})
    assert named == {"named": "two"}


def test_futures_in_a_result_stay_futures(blobs: blob_store.Blobs) -> None:
    got = back(serialization.pack_value([Pending(ONE)], blobs), blobs)
    assert (got[0].task, serialization.resolver()) == (ONE, None)


def test_futures_in_the_value_of_a_future_stay_futures(blobs: blob_store.Blobs) -> None:
    inner = serialization.pack_value([Pending(TWO)], blobs)
    payload, needs = serialization.pack_arguments((Pending(ONE),), {}, blobs)
    args, _ = serialization.unpack_arguments(
        payload, blobs, lambda task, index: serialization.unpack_value(inner, blobs)
    )
    assert needs == (ONE,)
    assert args[0][0].task == TWO


def test_futures_in_values_for_cloudpickle_are_counted_once(blobs: blob_store.Blobs) -> None:
    payload, needs = serialization.pack_arguments(([Pending(ONE), lambda: 7],), {}, blobs)
    args, _ = serialization.unpack_arguments(payload, blobs, lambda *_: "value")
    assert needs == (ONE,)
    assert (args[0][0], args[0][1]()) == ("value", 7)


def test_large_values_are_blobs(blobs: blob_store.Blobs) -> None:
    text = "x" * attempts.MAX_INLINE_BYTES
    for value, media_type in ((text, attempts.JSON), ((text,), attempts.PICKLE)):
        payload = serialization.pack_value(value, blobs)
        assert (payload.media_type, payload.data, len(payload.digest or b"")) == (
            media_type,
            b"",
            32,
        )
        assert payload.size > attempts.MAX_INLINE_BYTES
        assert back(payload, blobs) == value
    payload, _ = serialization.pack_arguments((text,), {}, blobs)
    assert serialization.unpack_arguments(payload, blobs, no_futures) == ((text,), {})


@pytest.mark.parametrize("size", [10, 200_000, 3_000_000])
def test_unpacked_arrays_are_writable_and_independent(blobs: blob_store.Blobs, size: int) -> None:
    sent = {"a": np.arange(size), "b": np.ones(size, dtype="f4"), "c": "text"}
    payload = serialization.pack_value(sent, blobs)
    first, second = back(payload, blobs), back(payload, blobs)
    assert np.array_equal(first["a"], sent["a"])
    assert np.array_equal(first["b"], sent["b"])
    first["a"][0] = 99
    assert (second["a"][0], back(payload, blobs)["a"][0], sent["a"][0]) == (0, 0, 0)
    assert first["a"].ctypes.data % 64 == 0 or size == 10


def test_an_array_that_may_not_be_changed_stays_so(blobs: blob_store.Blobs) -> None:
    for size in (10, 200_000):
        sent = np.arange(size)
        sent.flags.writeable = False
        got = back(serialization.pack_value(sent, blobs), blobs)
        assert not got.flags.writeable
        assert np.array_equal(got, sent)


class Recording:
    """Blobs in memory that remember the parts they were given, unjoined."""

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def put(self, parts: Any) -> tuple[bytes, int]:
        self.parts = list(parts)
        return b"d" * 32, sum(map(len, parts))

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        return memoryview(bytearray(b"".join(self.parts)))


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_large_bytes_are_written_as_they_are(kind: type) -> None:
    store = Recording()
    value = kind(1_000_000)
    payload = serialization.pack_value([value], store)
    assert any(part is value for part in store.parts)
    assert serialization.unpack_value(payload, store) == [value]


def test_large_array_is_written_without_a_copy() -> None:
    store = Recording()
    array = np.arange(100_000)
    payload = serialization.pack_value([array, array[::-1].copy()], store)
    held = [part.obj for part in store.parts if isinstance(part, memoryview)]
    assert len(held) == 2
    array[0] = -1
    assert serialization.unpack_value(payload, store)[0][0] == -1, (
        "it was copied before it was written"
    )


def test_payload_names_the_blobs_that_a_value_refers_to(blobs: blob_store.Blobs) -> None:
    payload, _ = serialization.pack_arguments(
        (Referring(b"r" * 32), Referring(b"r" * 32)), {}, blobs
    )
    assert payload.blobs == (b"r" * 32,)
    assert serialization.pack_value(Referring(b"s" * 32), blobs).blobs == (b"s" * 32,)


@dataclasses.dataclass
class Referring:
    digest: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        pickled_blob_references.note([self.digest])
        return Referring, (self.digest,)


def test_a_stream_comes_back_as_a_list_and_names_its_blobs(blobs: blob_store.Blobs) -> None:
    values = [1, ("two",), "x" * attempts.MAX_INLINE_BYTES]
    payloads = [serialization.pack_value(value, blobs) for value in values]
    packed = serialization.pack_stream(payloads, blobs)
    assert packed.media_type == attempts.STREAM
    assert packed.blobs == (payloads[2].digest,)
    assert back(packed, blobs) == values


class Holder:
    def __init__(self) -> None:
        self.fine = [1, 2]
        self.lock = threading.Lock()

    def look(self) -> bool:
        return self.lock.locked()


class Slotted:
    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = threading.Lock()


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        ((1, Holder()), {}, "arguments[1].lock"),
        ((), {"model": {"deep": [0, Holder()]}}, "arguments['model']['deep'][1].lock"),
        ((Slotted(),), {}, "arguments[0].inner"),
        ((threading.Lock(),), {}, "arguments[0]"),
        ((Box(content={3: (threading.Lock(),)}),), {}, "arguments[0].content[3][0]"),
        ((i for i in range(3)), {}, "arguments[0]"),
        ((1, Holder().look), {}, "arguments[1].__self__.lock"),
    ],
)
def test_error_names_the_part_that_cannot_be_pickled(
    args: Any, kwargs: dict[str, Any], path: str, blobs: blob_store.Blobs
) -> None:
    args = args if isinstance(args, tuple) else (args,)
    with pytest.raises(errors.NotPicklable) as caught:
        serialization.pack_arguments(args, kwargs, blobs)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: TypeError: cannot pickle ")
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_result_that_cannot_be_pickled_is_named(blobs: blob_store.Blobs) -> None:
    with pytest.raises(errors.NotPicklable, match=r"^result\[0\]\.lock: TypeError: cannot pickle"):
        serialization.pack_value([Holder()], blobs)


def test_error_says_that_a_value_is_nested_too_deeply(blobs: blob_store.Blobs) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(errors.NotPicklable, match=r"result: .*nested too deeply"):
        serialization.pack_value(deep, blobs)


def test_generator_is_refused_with_a_remedy(blobs: blob_store.Blobs) -> None:
    with pytest.raises(errors.NotPicklable, match="send a list of its values; a task that yields"):
        serialization.pack_value((n for n in range(3)), blobs)


def test_looking_for_the_culprit_ends_in_values_without_end(blobs: blob_store.Blobs) -> None:
    endless: list[Any] = [threading.Lock()]
    endless.insert(0, endless)
    many = [Box(n) for n in range(5_000)] + [threading.Lock()]
    for value, path in ((endless, r"result\[1\]: "), (many, "result: ")):
        with pytest.raises(errors.NotPicklable, match=path):
            serialization.pack_value(value, blobs)


class Raising:
    def __reduce__(self) -> tuple[Any, ...]:
        raise ValueError("no thank you")


def test_error_of_a_users_reduce_is_in_the_message(blobs: blob_store.Blobs) -> None:
    with pytest.raises(errors.NotPicklable, match=r"arguments\[0\]: ValueError: no thank you"):
        serialization.pack_arguments((Raising(),), {}, blobs)


lock = threading.Lock()


def test_a_function_names_the_global_or_closure_variable_that_fails() -> None:
    with pytest.raises(errors.NotPicklable) as caught:
        packed(lambda: lock)
    assert caught.value.path.endswith("<lambda>.__globals__['lock']")
    inner = threading.Lock()
    with pytest.raises(errors.NotPicklable) as caught:
        packed(lambda: inner)
    assert caught.value.path.endswith("<lambda>.__closure__['inner']")


def test_functions_of_installed_modules_go_by_name() -> None:
    assert serialization.located(json.dumps) is json.dumps
    assert serialization.located(np.linalg.norm) is np.linalg.norm
    assert serialization.located(ids.task_text) is ids.task_text
    assert serialization.function_name(ids.task_text) == "kilnwork.kit.ids:task_text"


def test_local_functions_go_by_value(tmp_path: Path) -> None:
    factor = 3

    def scaled(text: str) -> int:
        return int(json.loads(text)) * factor

    assert serialization.located(scaled) is None
    assert serialization.function_name(scaled) == f"{__name__}:{scaled.__qualname__}"
    assert called_elsewhere(tmp_path, packed(scaled), "'7'") == "21"


def test_modules_that_no_worker_can_import_are_taken_along(tmp_path: Path) -> None:
    made = types.ModuleType("made_here")
    sys.modules["made_here"] = made
    try:
        exec("class Box:\n    n = 5\ndef unbox(n):\n    return Box().n * n", made.__dict__)  # noqa: S102
        assert not serialization.taken_along("made_here")
        data = packed(made.unbox)
        assert serialization.taken_along("made_here")
        assert not serialization.taken_along("json")
    finally:
        cloudpickle.unregister_pickle_by_value(made)
        del sys.modules["made_here"]
    assert called_elsewhere(tmp_path, data, "7") == "35"


def test_missing_module_raises_with_a_remedy(blobs: blob_store.Blobs) -> None:
    payload = attempts.Payload(attempts.PICKLE, b"cnot_here\nThing\n.")
    with pytest.raises(ModuleNotFoundError) as caught:
        serialization.unpack_value(payload, blobs)
    (note,) = caught.value.__notes__
    assert "cannot import 'not_here'" in note
    assert "modules=[…]" in note


def packed(function: Callable[..., Any]) -> bytes:
    return serialization.pack_by_value(
        function, function, along=not serialization.findable(function)
    )


def called_elsewhere(directory: Path, data: bytes, argument: str) -> str:
    (directory / "code").write_bytes(data)
    return python_subprocess.run(
        "import sys, pathlib\n"
        "from kilnwork.sdk import serialization\n"
        "function = serialization.load_function(pathlib.Path(sys.argv[1]).read_bytes())\n"
        f"print(function({argument}))",
        str(directory / "code"),
    )


MAIN = """
import pathlib, subprocess, sys
from kilnwork.data import local_blobs
from kilnwork.sdk import serialization

class Point:
    def __init__(self, x):
        self.x = x

def double(point):
    return Point(point.x * 2)

directory, worker = pathlib.Path(sys.argv[1]), sys.argv[2]
store = local_blobs.Blobs(directory, durable=False)
payload, _ = serialization.pack_arguments((Point(4),), {}, store)
name = serialization.function_name(double)
(directory / "code").write_bytes(serialization.pack_by_value(double, double, along=True))
(directory / "data").write_bytes(payload.data)
subprocess.run([sys.executable, "-c", worker, directory], check=True)
reply = serialization.Payload(payload.media_type, (directory / "reply").read_bytes())
result = serialization.unpack_value(reply, store)
print(name, type(result) is Point, result.x)
"""
WORKER = """
import pathlib, sys
from kilnwork.api import attempts
from kilnwork.data import local_blobs
from kilnwork.sdk import serialization

class Point:  # another one, to be mistaken for the driver's
    pass

directory = pathlib.Path(sys.argv[1])
store = local_blobs.Blobs(directory, durable=False)
function = serialization.load_function((directory / "code").read_bytes())
data = serialization.Payload(attempts.PICKLE, (directory / "data").read_bytes())
args, _ = serialization.unpack_arguments(data, store, None)
(directory / "reply").write_bytes(serialization.pack_value(function(*args), store).data)
"""


def test_classes_of_main_survive_there_and_back_as_themselves(tmp_path: Path) -> None:
    assert python_subprocess.run(MAIN, str(tmp_path), WORKER) == "__main__:double True 8"


def test_plain_values_need_no_cloudpickle() -> None:
    printed = python_subprocess.run(
        "import sys\n"
        "from kilnwork.sdk import serialization\n"
        "payload, _ = serialization.pack_arguments(((1, 2), {3}), {}, None)\n"
        "assert serialization.located(sys.exit) is sys.exit\n"
        "print(serialization.unpack_arguments(payload, None, None)[0])\n"
        "print('cloudpickle' in sys.modules)"
    )
    assert printed == "((1, 2), {3})\nFalse"
