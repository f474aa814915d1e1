"""Support for testing programs that use kilnwork: their tasks run in the test's own process,
without delay.

`with kiln.testing.inline():` opens a session without dispatcher, worker or journal. Retries, keys,
errors, futures as arguments, delegation, cancellation and generators work as in other sessions.
Arguments and results are packed as there, so that values that cannot be sent are found. Time is
virtual: retry delays, timeouts and sleeping tasks take no time. For a fixture see `testing.plugin`.
Not a runtime: one task at a time, and nothing outlives the `with` block.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilnwork.testing.clock import VirtualClock
    from kilnwork.testing.inline_flows import run_flow
    from kilnwork.testing.inline_sessions import InlineSession, inline
    from kilnwork.testing.inline_sets import run_set

__all__ = ["InlineSession", "VirtualClock", "inline", "run_flow", "run_set"]
"""Public names; also available as `kilnwork.testing.NAME`."""

_MODULES = {
    "InlineSession": "inline_sessions",
    "VirtualClock": "clock",
    "inline": "inline_sessions",
    "run_flow": "inline_flows",
    "run_set": "inline_sets",
}
"""Modules by the name that loads them on first use (PEP 562): `testing.kubernetes` needs none of
them, nor the sdk.
"""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
