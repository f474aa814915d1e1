"""The registry of the executors of a manager, by name.

Created by `controllers.assembly`, used by `controllers.attempts`.
"""

from collections.abc import Iterable, Iterator

from kilnwork.executors import port


class Registry:
    """Registry of executors, by name. Raises ValueError if two have the same name."""

    def __init__(self, executors: Iterable[port.Executor]) -> None:
        self._by_name: dict[str, port.Executor] = {}
        for executor in executors:
            if executor.name in self._by_name:
                raise ValueError(f"two executors are called {executor.name}")
            self._by_name[executor.name] = executor

    def __iter__(self) -> Iterator[port.Executor]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> port.Executor:
        return self._by_name[name]
