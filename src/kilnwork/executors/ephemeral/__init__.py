"""Executor `ephemeral`: an attempt is an ephemeral container, added to the Pod of its worker.

Workers ask for it (`kilnwork.worker.containers`): they have slot, files and socket of the attempt,
and report its end. `template` makes the container, under a name that follows from the attempt;
`executor` adds or finds it and follows it by the watch of Pods; `observation` says what its status
means. Nothing of it can be deleted (KEP-277), so that a Pod is replaced before it has too many
(`limits`).
"""

from kilnwork.executors.ephemeral.executor import EphemeralExecutor

__all__ = ["EphemeralExecutor"]
