"""Index sets: the indexes of a Job, their labels and their variables.

Created from `spec.template.parallelism`. Used by the engine, which stores only numbers, and by
views of indexes. Nothing is enumerated: an index is computed from its number, so that a million
indexes use no memory. No I/O.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kilnwork.api import job, job_variables, json_limits, names
from kilnwork.kit import errors

MAX_RANGES = 4096
"""Maximum length of `status.indexes.failedIndexes`, so that a Job's object stays small."""

MAX_PREFIX = names.LABEL_LENGTH - len(f"-{job.MAX_INDEXES - 1}")
"""Maximum length of the Job's part of a task name, which leaves room for the longest number."""


class UnknownIndex(errors.KilnError):
    """The Job has no index with the requested label; the message describes its indexes."""


class IndexSet:
    """The indexes of one Job, numbered from 0. In a matrix, the last key in alphabetical order
    varies fastest.

    `items`: for `withResultOf`, the list that the other task returned.
    """

    def __init__(
        self, parallelism: job.Parallelism | None, items: Sequence[Any] | None = None
    ) -> None:
        given = parallelism if parallelism is not None else job.Parallelism(with_count=1)
        self._keys = given.with_keys
        # Sorted by name: an API server sorts the keys of an object, and numbers must not change
        # with the order.
        matrix = given.with_matrix
        self._matrix = None if matrix is None else dict(sorted(matrix.items()))
        self._items: Sequence[Any] | None = None
        if given.with_result_of is not None:
            if items is None:
                raise ValueError("the indexes of withResultOf are not known without its list")
            self._items = items
        self.size = self._size(given)
        """Number of indexes; 0 for an empty list."""

    def _size(self, given: job.Parallelism) -> int:
        if self._keys is not None:
            return len(self._keys)
        if self._matrix is not None:
            size = 1
            for values in self._matrix.values():
                size *= len(values)
            return size
        return given.with_count or 0 if self._items is None else len(self._items)

    def variables(self, number: int) -> dict[str, Any]:
        """Return the variables of an index, by name."""
        self._check(number)
        values: dict[str, Any] = {job_variables.INDEX_NUM: number}
        if self._keys is not None:
            values[job_variables.INDEX_KEY] = self._keys[number]
        elif self._matrix is not None:
            for key, value in self._combination(self._matrix, number).items():
                values[job_variables.INDEX_MATRIX_PREFIX + key] = value
        elif self._items is not None:
            values[job_variables.INDEX_ITEM] = self._items[number]
        return values

    def label(self, number: int) -> str:
        """Return a readable label of an index: its number, its key, or its values as
        `city=oslo,floor=1`."""
        self._check(number)
        if self._keys is not None:
            return self._keys[number]
        if self._matrix is not None:
            values = self._combination(self._matrix, number)
            return ",".join(f"{key}={value}" for key, value in values.items())
        return str(number)

    def status(self, number: int) -> job.ParallelIndex:
        """Return an index in the form of `status.tasks`."""
        self._check(number)
        if self._keys is not None:
            return job.ParallelIndex(index_key=self._keys[number])
        if self._matrix is not None:
            return job.ParallelIndex(matrix_values=self._combination(self._matrix, number))
        return job.ParallelIndex(index_number=number)

    def find(self, label: str) -> int:
        """Return the number of the index with this label, or with this number if there is no such
        label.

        Raises UnknownIndex.
        """
        if self._keys is not None and label in self._keys:
            return self._keys.index(label)
        if self._matrix is not None and (found := self._find_combination(label)) is not None:
            return found
        if label.isascii() and label.isdecimal() and len(label) <= 10 and int(label) < self.size:
            return int(label)
        raise UnknownIndex(f"there is no index {json_limits.show(label)}; {self._described()}")

    def _described(self) -> str:
        if not self.size:
            return "the Job has none"
        last = self.size - 1
        if self._keys is None and self._matrix is None:
            return f"indexes are 0 to {last}"
        return f"indexes are 0 to {last}, or {self.label(0)} to {self.label(last)}"

    def _combination(self, matrix: dict[str, tuple[str, ...]], number: int) -> dict[str, str]:
        """Return the values of an index of a matrix: the digits of its number in mixed radix."""
        values: dict[str, str] = {}
        for key in reversed(matrix):
            number, digit = divmod(number, len(matrix[key]))
            values[key] = matrix[key][digit]
        return dict(reversed(values.items()))

    def _find_combination(self, label: str) -> int | None:
        """Return the number of the matrix index with this label.

        Values may contain `,` and `=`, so each key is matched with its possible values.
        """
        matrix = self._matrix
        if matrix is None:
            return None
        open_: dict[str, int] = {label: 0}  # remaining part of the label: number so far
        for position, (key, values) in enumerate(matrix.items()):
            separator = "," if position else ""
            matched: dict[str, int] = {}
            for left, number in open_.items():
                for digit, value in enumerate(values):
                    beginning = f"{separator}{key}={value}"
                    if left.startswith(beginning):
                        rest = left.removeprefix(beginning)
                        matched.setdefault(rest, number * len(values) + digit)
            open_ = matched
        return open_.get("")

    def _check(self, number: int) -> None:
        if not 0 <= number < self.size:
            raise UnknownIndex(f"there is no index {number}; {self._described()}")


def task_name(job_name: str, number: int) -> str:
    """Return the name of the task of an index, `<job>-<number>`: a DNS label of at most 63
    characters.

    The number is never cut, so that the names of a Job's indexes differ. A Job name that is longer
    than MAX_PREFIX, or is not a label, is cut and gets a hash of the full name, which is the same
    for all indexes.
    """
    return f"{_prefix(job_name)}-{number}"


@functools.lru_cache(maxsize=1024)
def _prefix(job_name: str) -> str:
    return names.dns_label(job_name, MAX_PREFIX)


def ranges(numbers: Iterable[int], limit: int = MAX_RANGES) -> str:
    """Return ascending numbers as ranges, such as `3,17-19`, in at most `limit` characters.

    If they do not fit, the text ends with the number of omitted numbers: `3,17-19,… (812 more)`.
    """
    written: list[tuple[str, int]] = []
    length, more = -1, 0
    for first, last in _runs(numbers):
        text = str(first) if first == last else f"{first}-{last}"
        if more or length + 1 + len(text) > limit:
            more += last - first + 1
        else:
            length += 1 + len(text)
            written.append((text, last - first + 1))
    if not more:
        return ",".join(text for text, _ in written)
    while written and length + len(_omitted(more)) > limit:
        text, count = written.pop()
        length -= 1 + len(text)
        more += count
    return ",".join(text for text, _ in written) + _omitted(more)


def _omitted(count: int) -> str:
    return f",… ({count} more)"


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of consecutive numbers."""
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last
