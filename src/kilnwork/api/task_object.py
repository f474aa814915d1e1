"""Kind TaskObject: immutable data that tasks take as input; `data` is any JSON.

Used by the CRDs and by the Task controller.
"""

from typing import Any

import msgspec

from kilnwork.api import meta


class TaskObject(
    msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True, omit_defaults=True
):
    """Input data. It cannot be changed once made: a task that runs again must read the same."""

    metadata: meta.ObjectMeta
    data: Any = None
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "TaskObject"
