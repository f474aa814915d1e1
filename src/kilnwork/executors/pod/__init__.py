"""Executor `pod`: an attempt is a Pod of its own, made from the template of the task.

One attempt: `template` makes the Pod, under a name that follows from the attempt, held by a
finalizer until its outcome is stored; `executor` creates or adopts it and follows it by a watch;
`observation` says what its status means. A Pod of a Task stays, like those of a Kubernetes Job,
until the Task is deleted; that of a spawned task is deleted when its outcome is stored.
"""

from kilnwork.executors.pod.executor import PodExecutor

__all__ = ["PodExecutor"]
