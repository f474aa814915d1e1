"""The former name of the module `task_lookup`, kept for functions sent by programs of earlier
versions.

A function that is sent by value refers to `kiln.future` and `kiln.retry` by the module that defined
them; such calls may still be in a journal.
"""

from kilnwork.sdk.task_lookup import future, retry

__all__ = ["future", "retry"]
