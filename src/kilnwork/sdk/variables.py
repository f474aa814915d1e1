"""Variables of a call, in the environment of its process while it runs.

Used by the worker's slots and by `kilnwork.testing`. Where the values come from is not known here.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def applied(values: Mapping[str, str]) -> Iterator[None]:
    """Have these in the environment of this process, and afterwards what was there before.

    A slot runs calls one after the other, or one on top of another that has the same variables.
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
