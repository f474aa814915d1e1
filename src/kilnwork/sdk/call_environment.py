"""Environment variables of a call, set while it runs.

Used by the worker's slots and by `kilnwork.testing`, which look up the values.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def applied(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process, and restore the previous values afterwards.

    The environment is shared by all threads; this is safe because a slot runs calls one after the
    other, or nested calls that have the same variables.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
