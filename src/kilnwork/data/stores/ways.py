"""How this process reaches its manager's store, if it can.

Set by the worker before slots are forked, read by `opening`. Small, since it is imported where no
store is opened.
"""

from pathlib import Path
from typing import NamedTuple

from kilnwork.data import asking


class Way(NamedTuple):
    """`spool`: folder of this worker for what waits to be sent."""

    route: asking.Route
    spool: Path | None


manager: Way | None = None
"""Of this process; None where the manager's folder is to be seen, or there is no manager."""
