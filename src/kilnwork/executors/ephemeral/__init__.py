"""Executor `ephemeral`: an attempt is an ephemeral container, added to the Pod of its worker.

Workers request it (`kilnwork.worker.ephemeral_containers`): they provide slot, files and socket of
the attempt, and report its end. `template` builds the container, under a name derived from the
attempt; `executor` adds or finds it and follows it by the watch of Pods; `observation` interprets
its status. Ephemeral containers cannot be deleted (KEP-277), so a Pod is replaced before it has too
many (`limits`).
"""

from kilnwork.executors.ephemeral.executor import EphemeralExecutor

__all__ = ["EphemeralExecutor"]
