"""Executor `customResource`: an attempt is an object of any kind, created from a manifest.

For one attempt, `template` builds the object, under a name derived from the attempt and with a
finalizer that holds it until its outcome is stored; `served_kinds` checks whether its kind is
served and allowed; `follower` watches it; `status_reader` interprets its status by the rules of the
task, and `observation` derives the state of the attempt; `executor` combines them. Executor
`workflow` is the same with another reader.
"""

from kilnwork.executors.custom_resource.executor import ObjectExecutor, Shared
from kilnwork.executors.custom_resource.follower import Follower
from kilnwork.executors.custom_resource.served_kinds import AllowedKinds, Kinds
from kilnwork.executors.custom_resource.status_reader import RuleReader

__all__ = ["AllowedKinds", "Follower", "Kinds", "ObjectExecutor", "RuleReader", "Shared"]
