"""Executor `pod`: an attempt is a Pod of its own, created from the template of the task.

For one attempt, `template` builds the Pod, under a name derived from the attempt and with a
finalizer that holds it until its outcome is stored; `executor` creates or adopts it and follows it
by a watch; `observation` interprets its status. The Pod of a Task stays, like those of a batch Job,
until the Task is deleted; that of a spawned task is deleted when its outcome is stored.
"""

from kilnwork.executors.pod.executor import PodExecutor

__all__ = ["PodExecutor"]
