"""For tests of programs that use kilnwork: their tasks run in the test's own process, in no time.

`with kiln.testing.inline():` is a session without dispatcher, worker or journal. Retries, keys,
errors, futures as arguments, delegation, cancellation and generators mean what they mean elsewhere,
and arguments and results are packed as elsewhere, so that what cannot be sent is found. Time is
virtual: retry delays, timeouts and sleeping tasks take none. For a fixture see `testing.plugin`.
Not a runtime: one task at a time, and nothing outlives the `with`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilnwork.testing.clock import VirtualClock
    from kilnwork.testing.inline_flows import run_flow
    from kilnwork.testing.inline_sessions import InlineSession, inline
    from kilnwork.testing.inline_sets import run_set

__all__ = ["InlineSession", "VirtualClock", "inline", "run_flow", "run_set"]
"""Public; also as `kilnwork.testing.NAME`."""

_MODULES = {
    "InlineSession": "inline_sessions",
    "VirtualClock": "clock",
    "inline": "inline_sessions",
    "run_flow": "inline_flows",
    "run_set": "inline_sets",
}
"""Loaded on first use (PEP 562): `testing.kubernetes` needs none of them, nor the sdk."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
