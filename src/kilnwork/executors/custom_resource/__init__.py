"""Executor `customResource`: an attempt is an object of any kind, made from a manifest.

One attempt: `template` makes the object, under a name that follows from the attempt, held by a
finalizer until its outcome is stored; `served_kinds` knows whether its kind is there, and allowed;
`follower` follows it; `reader` says by the rules of the task what its status means, `observation`
what that means for the attempt; `executor` brings them together. Executor `workflow` is the same
with another reader.
"""

from kilnwork.executors.custom_resource.executor import ObjectExecutor, Shared
from kilnwork.executors.custom_resource.follower import Follower
from kilnwork.executors.custom_resource.reader import RuleReader
from kilnwork.executors.custom_resource.served_kinds import AllowedKinds, Kinds

__all__ = ["AllowedKinds", "Follower", "Kinds", "ObjectExecutor", "RuleReader", "Shared"]
