"""Rules for flows beyond their schema."""

from collections.abc import Collection

from kilnwork.api import flow

Problem = tuple[str, str]


def problems(
    declared: flow.Flow, *, snapshots: Collection[str], groups: Collection[str]
) -> list[Problem]:
    """What is wrong with a flow."""
    return [] if declared.do else [("do", "must have a step")]
