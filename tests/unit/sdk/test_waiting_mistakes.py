"""gather, wait, as_completed: what is said to those who give something else than futures."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kilnwork as kiln


@kiln.task
def double(number: int) -> int:
    return 2 * number


@pytest.fixture(autouse=True)
def session() -> Iterator[kiln.Session]:
    with kiln.testing.inline() as session:
        yield session


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: kiln.gather([double.submit(1)]), "takes futures, not a list: write gather(*…)"),  # type: ignore[arg-type]
        (lambda: kiln.gather(double.map([1])), "takes futures, not a Futures: write gather(*…)"),  # type: ignore[arg-type]
        (lambda: kiln.gather(double.submit(1), 2), "takes futures, not an int"),  # type: ignore[arg-type]
        (lambda: kiln.gather(double), "not a Task: submit it"),  # type: ignore[arg-type]
        (lambda: kiln.wait(double.submit(1)), "takes futures in a list, not one"),  # type: ignore[arg-type]
        (lambda: kiln.wait([1]), "takes futures, not an int"),  # type: ignore[arg-type]
        (lambda: kiln.as_completed(double.submit(1)), "takes futures in a list, not one"),  # type: ignore[arg-type]
        (lambda: kiln.as_completed([[]]), "takes futures, not a list"),  # type: ignore[arg-type]
    ],
)
def test_error_names_the_object_that_is_no_future(mistake: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        mistake()
    assert words in str(caught.value)


def test_a_word_that_wait_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"return_when='ALL': .*ALL_COMPLETED"):
        kiln.wait([double.submit(1)], return_when="ALL")  # type: ignore[arg-type]
