"""File descriptors of this process: the open ones, and a limit on new ones."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@contextlib.contextmanager
def limit_new(count: int) -> Iterator[None]:
    """Allow only `count` more descriptors: fill gaps, then set the limit."""
    fillers, highest = [os.dup(0)], max(map(int, open_descriptors()))
    while fillers[-1] <= highest:
        fillers.append(os.dup(0))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for filler in fillers:
            os.close(filler)
