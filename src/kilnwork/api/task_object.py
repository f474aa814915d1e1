"""Kind TaskObject: immutable data that tasks take as input; `data` is any JSON.

Used by the CRDs and by the controllers of Tasks and Jobs.
"""

from typing import Any

import msgspec

from kilnwork.api import meta


class TaskObject(
    msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True, omit_defaults=True
):
    """Input data. It is immutable, so that a task that runs again reads the same data."""

    metadata: meta.ObjectMeta
    data: Any = None
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskObject"
