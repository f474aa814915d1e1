"""Loading by name, at the moment of use: the only dynamic imports of the command line.

Used by `main` for commands and by `progress` for rich.
"""

import importlib
from typing import Any


def load(module: str, attribute: str) -> Any:
    """`attribute` of `module`, imported now."""
    return getattr(importlib.import_module(module), attribute)
