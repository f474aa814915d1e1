"""The flow of a SyncSet: its steps as users write them.

Used by `api.sync_set` and by the engine of flows.
"""

from typing import Any

import msgspec

from kilnwork.api import wire


class Flow(wire.Wire, frozen=True):
    """Steps in their order."""

    do: tuple[dict[str, Any], ...]
    """Steps, each an object of one key, its name."""
    catch: tuple[dict[str, Any], ...] = ()
    """What is done when a step fails."""
    finally_: tuple[dict[str, Any], ...] = msgspec.field(default=(), name="finally")
    """What is done at the end in any case."""
    timeout_seconds: float | None = None
    """Seconds for the whole flow."""
