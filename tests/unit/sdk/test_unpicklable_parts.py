"""The path to the smallest part of a value that cannot be pickled."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kilnwork.sdk import unpicklable_parts


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        return "Holder"

    def method(self) -> None:
        """Bound to what it is of."""


def attempt(value: Any) -> Exception | None:
    try:
        pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever pickling raises
        return error
    return None


def refuse_locks(value: Any) -> Exception | None:
    """Pickles by value what pickle would take by name: functions with what they close over."""
    if isinstance(value, type(lambda: 0)):
        cells = value.__closure__ or ()
        parts = [*(cell.cell_contents for cell in cells), value.__defaults__]
        return next((error for part in parts if (error := refuse_locks(part))), None)
    return attempt(value)


def closed_over(lock: Any) -> Callable[[], Any]:
    return lambda: lock


def with_default(lock: Any) -> Callable[..., Any]:
    def function(given: Any = lock) -> Any:
        return given

    return function


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (LOCK, "v"),
        ([1, [LOCK]], "v[1][0]"),
        ((1, LOCK), "v[1]"),
        ({"a": {"b": LOCK}}, "v['a']['b']"),
        ({"a": 1, Holder(c=LOCK): 2}, "v.keys()[Holder].c"),
        (Holder(a=1, b=Holder(c=LOCK)), "v.b.c"),
        (Holder(lock=LOCK).method, "v.__self__.lock"),
        (closed_over(LOCK), "v.__closure__['lock']"),
        (with_default([LOCK]), "v.__defaults__[0][0]"),
        ({"k" * 100: LOCK}, "v['" + "k" * 56 + "...]"),
    ],
)
def test_the_path_leads_to_the_smallest_part(value: Any, path: str) -> None:
    whole = TypeError("the whole fails")
    found, error = unpicklable_parts.find([("v", value)], whole, attempt=refuse_locks)
    assert found == path
    assert "lock" in str(error)


def test_value_is_reported_itself_if_all_its_parts_pickle() -> None:
    whole = TypeError("the whole fails")
    assert unpicklable_parts.find([("v", [1])], whole, attempt=attempt) == ("value", whole)


def test_a_part_that_is_met_twice_is_tried_once() -> None:
    tried: list[Any] = []
    part = [1]

    def counted(value: Any) -> Exception | None:
        tried.append(value)
        return None

    unpicklable_parts.find([("a", part), ("b", part), ("c", 1)], TypeError(), attempt=counted)
    assert tried == [part]


def test_the_number_of_tries_is_bounded() -> None:
    tried = 0

    def counted(_: Any) -> Exception | None:
        nonlocal tried
        tried += 1
        return None

    parts = [(f"[{n}]", [n]) for n in range(unpicklable_parts.MAX_TRIES + 5)]
    unpicklable_parts.find(parts, TypeError(), attempt=counted)
    assert tried == unpicklable_parts.MAX_TRIES == 2000


def test_the_path_is_at_most_32_steps_long() -> None:
    value: Any = LOCK
    for _ in range(40):
        value = [value]
    path, _ = unpicklable_parts.find([("v", value)], TypeError(), attempt=attempt)
    assert path == "v" + "[0]" * (unpicklable_parts.MAX_DEPTH - 1)
    assert unpicklable_parts.MAX_DEPTH == 32


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RecursionError("too deep"), "send it flatter"),
        (pickle.PicklingError("maximum recursion depth exceeded"), "send it flatter"),
        (TypeError("cannot pickle 'generator' object"), "send a list of its values"),
        (TypeError("cannot pickle '_thread.lock' object"), "make it in the task"),
    ],
)
def test_a_description_names_the_kind_and_the_remedy(error: Exception, remedy: str) -> None:
    text = unpicklable_parts.describe(error)
    assert text.startswith(f"{type(error).__name__}: ")
    assert remedy in text
    assert unpicklable_parts.is_depth(error) is ("flatter" in remedy)
