"""Base classes of context managers that close, or abort unless they were committed.

Used by readings and writers, here and in `files`.
"""

import abc
from typing import Self


class Closeable(abc.ABC):
    """A context manager that calls `close` at the end of its block."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources; may be repeated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Abortable(Closeable):
    """A context manager that calls `abort` at the end of its block."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Discard the bytes that were written. May be repeated; has no effect after a commit."""

    def close(self) -> None:
        self.abort()
