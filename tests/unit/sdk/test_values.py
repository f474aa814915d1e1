"""Values are put away once, stand for themselves as arguments, and live while they are held."""

import gc
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilnwork.api import attempts, calls, task
from kilnwork.data import blob_renewal, errors, local_blobs
from kilnwork.kit import clock, ids
from kilnwork.sdk import errors as sdk_errors
from kilnwork.sdk import futures, serialization, session, values

LARGE = "x" * 100_000


class Here:
    """As much of a session as values need: blobs, and whether files are shared."""

    in_slot = False

    def __init__(self, directory: Path) -> None:
        self.blobs = local_blobs.Blobs(directory, durable=False)
        self.shares_files = True
        self.link = SimpleNamespace(wake=lambda: None, gather=lambda: None)

    def block(self, done: Any, timeout_s: Any, tasks: Any, *, first: bool = False) -> bool:
        return bool(done())


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    found: Any = Here(tmp_path / "blobs")
    session.activate(found)
    yield found
    session.deactivate(found)


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def files(here: Here) -> int:
    return sum(1 for _ in here.blobs.entries())


def done(here: Any, value: Any) -> futures.Future[Any]:
    found: futures.Future[Any] = futures.CallFuture(here, 1, ids.new_task_id())
    payload = serialization.pack_value(value, here.blobs)
    found.settle(calls.CallResult(1, task.State.SUCCESS, "", "", payload))
    return found


def failed(here: Any) -> futures.Future[Any]:
    found: futures.Future[Any] = futures.CallFuture(here, 1, ids.new_task_id())
    payload = serialization.pack_error(KeyError("mine"))
    found.settle(calls.CallResult(1, task.State.FAILED, "Raised", "", payload))
    return found


@pytest.mark.parametrize(
    "value", [None, 1, LARGE, [LARGE, 1.5], {"a": (1, 2)}, b"x" * 2_000_000, {1, 2}]
)
def test_get_returns_the_value_that_was_put(here: Here, value: Any) -> None:
    ref = values.put(value)
    assert values.get(ref) == value
    assert values.get(travelled(ref)) == value
    assert len(pickle.dumps(ref)) < 2000


def test_small_values_are_no_files(here: Here) -> None:
    assert values.get(values.put([1, 2])) == [1, 2]
    assert files(here) == 0
    values.put("x" * 2 * values.INLINE_BYTES)
    assert files(here) == 1


def test_equal_values_are_stored_once(here: Here) -> None:
    first, second = values.put(LARGE), values.put(LARGE)
    assert first == second
    assert hash(first) == hash(second)
    assert first != values.put(LARGE + "y")
    assert files(here) == 2
    same: object = values.put(first)
    assert same is first


def test_repr_of_a_ref_shows_size_or_digest(here: Here) -> None:
    assert repr(values.put(1)) == "<Ref inline, 1 bytes>"
    ref = values.put(LARGE)
    assert repr(ref).startswith("<Ref sha256:")
    assert ref.size == len(LARGE) + 2


def test_a_future_needs_no_put(here: Here) -> None:
    with pytest.raises(TypeError, match="needs no put"):
        values.put(done(here, 1))


def test_without_a_session_nothing_can_be_put() -> None:
    with pytest.raises(sdk_errors.NoSession):
        values.put(LARGE)


def test_arguments_get_the_value(here: Here) -> None:
    ref = values.put(LARGE)
    given = ([ref, {"deep": (ref,)}], values.put(2))
    payload, needs = serialization.pack_arguments(given, {"k": ref}, here.blobs)
    assert needs == ()
    assert payload.blobs == (here_digest(ref),)
    args, kwargs = serialization.unpack_arguments(payload, here.blobs, no_futures)
    assert args == ([LARGE, {"deep": (LARGE,)}], 2)
    assert kwargs == {"k": LARGE}


def test_results_keep_the_ref(here: Here) -> None:
    ref = values.put(LARGE)
    payload = serialization.pack_value([ref], here.blobs)
    assert payload.blobs == (here_digest(ref),)
    assert serialization.unpack_value(payload, here.blobs) == [ref]


def test_ref_names_the_blobs_of_nested_refs(here: Here) -> None:
    """The inner ones are held by the outer one, wherever it goes."""
    inner = values.put(LARGE)
    outer = values.put([inner, "y" * 5000])
    payload, _ = serialization.pack_arguments((outer,), {}, here.blobs)
    assert set(payload.blobs) == {here_digest(inner), here_digest(outer)}
    (found,), _ = serialization.unpack_arguments(payload, here.blobs, no_futures)
    assert found == [inner, "y" * 5000]
    assert values.get(found[0]) == LARGE


def here_digest(ref: values.Ref[Any]) -> bytes:
    digest = ref._payload.digest
    assert digest is not None
    return digest


def no_futures(task_id: ids.TaskId, index: int | None) -> Any:
    raise AssertionError("there are no futures")


def test_blob_is_renewed_while_its_ref_is_held(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    time = clock.ManualClock()
    held = blob_renewal.HeldBlobs(time)
    monkeypatch.setattr(blob_renewal, "hold", held.hold)
    ref = travelled(values.put([values.put(LARGE), "y" * 5000]))
    aged = [here.blobs.path(entry.digest) for entry in here.blobs.entries()]
    for path in aged:
        os.utime(path, (1, 1))
    held.renew(here.blobs)
    assert len(aged) == 2
    assert all(path.stat().st_mtime > 1 for path in aged)
    del ref
    gc.collect()
    for path in aged:
        os.utime(path, (1, 1))
    time.advance(blob_renewal.RENEW_S)
    held.renew(here.blobs)
    assert all(path.stat().st_mtime == 1 for path in aged)


def test_missing_value_is_named_in_the_error(here: Here) -> None:
    ref = values.put(LARGE)
    here.blobs.path(here_digest(ref)).unlink()
    with pytest.raises(errors.BlobMissing, match=here_digest(ref).hex()):
        values.get(ref)


# get


def test_all_shapes(here: Here) -> None:
    one: Any = done(here, 1)
    two: Any = values.put(2)
    assert values.get(one) == 1
    nested: Any = [one, two, (two, [])]
    assert values.get(nested) == [1, 2, [2, []]]
    assert values.get((one,)) == [1]
    nested = {"a": one, "b": [two]}
    assert values.get(nested) == {"a": 1, "b": [2]}


@pytest.mark.parametrize("item", [1, "id", None, [1], {"a": "b"}, b""])
def test_get_refuses_other_objects(here: Here, item: Any) -> None:
    with pytest.raises(TypeError, match="give a Ref, a future"):
        values.get(item)


def test_failure_is_raised_while_other_tasks_continue(here: Any) -> None:
    waiting: futures.Future[Any] = futures.CallFuture(here, 1, ids.new_task_id())
    with pytest.raises(KeyError, match="mine"):
        values.get([waiting, failed(here)])


def test_time_is_up(here: Any) -> None:
    waiting: futures.Future[Any] = futures.CallFuture(here, 1, ids.new_task_id())
    with pytest.raises(TimeoutError, match="1 of 2 futures are not done"):
        values.get([done(here, 1), waiting], timeout=0)


# split


def test_files_stay_where_workers_see_them(here: Here, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    assert [list(part) for part in values.split(tmp_path / "in.txt", 2)] == [["a"], ["b"]]
    assert files(here) == 0


@pytest.mark.parametrize("ship", [None, True, False])
def test_files_go_along_elsewhere(here: Here, tmp_path: Path, *, ship: bool | None) -> None:
    here.shares_files = False
    path = tmp_path / "in.txt"
    path.write_text("a\nb\n")
    found = values.split(path, 2, ship=ship)
    payload, _ = serialization.pack_arguments((found[0],), {}, here.blobs)
    assert [bool(part.file.blob) for part in found] == [ship is not False] * 2
    assert payload.blobs == (() if ship is False else (found[0].file.blob,))
    assert (files(here), ship) in {(1, None), (1, True), (0, False)}
    (part,), _ = serialization.unpack_arguments(payload, here.blobs, no_futures)
    path.unlink()
    if ship is False:
        with pytest.raises(FileNotFoundError):
            list(part)
    else:
        assert list(part) == ["a"]


def test_no_session_is_needed_to_split(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    (part,) = values.split(tmp_path / "in.txt", 4, errors="replace", number_lines=False)
    assert (part.file.blob, part.first_line, list(part)) == (None, None, ["a"])
    assert attempts.MAX_INLINE_BYTES > values.INLINE_BYTES
