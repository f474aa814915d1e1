"""What ends with its `with` block: closed, or aborted unless it was committed in it.

Bases of readings and writers, here and in `files`.
"""

import abc
from typing import Self


class Closes(abc.ABC):
    """The block ends with `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what is held; may be repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Aborts(Closes):
    """The block ends with `abort`."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Discard what was written. Repeatable; has no effect once that is complete."""

    def close(self) -> None:
        self.abort()
