"""What happened lately, for the message of an `IllegalTransition`: inputs without their payloads.

Used by `machine` and `memory`. An entry is made for every input, so it costs next to nothing, and
keeps nothing large alive; words are made of it only when it is told. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kilnwork.api import calls
from kilnwork.dispatch.machine import inputs

LENGTH = 100
"""Inputs that are told about."""

Entry = tuple[float, type, Any]
"""When (monotonic seconds), what kind of input, and the input itself or the gist of it."""

Gist = tuple[Any, ...]

_NAMES = (
    "link", "serial", "ref", "parent", "session", "pod_uid", "reason", "child_key", "task", "slot",
    "code", "asked",
)  # fmt: skip
"""Fields that say what an input is about, and nothing that a user may want kept secret."""


def _first(link: int, items: tuple[calls.CallItem, ...] | tuple[calls.Watched, ...]) -> Gist:
    return (link, len(items), items[0].task if items else b"")


def _ends(ends: tuple[calls.CallEnd, ...]) -> Gist:
    return (ends[0].ref, ends[0].ending) if ends else ()


_GISTS: dict[type, Callable[[Any], Gist]] = {
    inputs.Submit: lambda item: (item.submission.task, item.submission.spec.run),
    inputs.Rerun: lambda item: (item.task, item.run),
    inputs.Spawn: lambda item: (item.link, item.serial, item.parent, item.child_key, item.task),
    inputs.Finished: lambda item: (
        item.link, item.serial, item.ref, item.outcome.ending, item.outcome.proof,
    ),
    inputs.Define: lambda item: (item.link, item.number),
    inputs.Undefine: lambda item: (item.link, len(item.numbers)),
    inputs.SubmitCalls: lambda item: _first(item.link, item.items),
    inputs.WatchTasks: lambda item: _first(item.link, item.items),
    inputs.CancelTasks: lambda item: (item.link, len(item.tasks), *item.tasks[:3]),
    inputs.CallsEnded: lambda item: (item.link, item.serial, len(item.ends), *_ends(item.ends)),
    inputs.CallsReturned: lambda item: (item.link, len(item.refs), *item.refs[:3]),
    inputs.Waiting: lambda item: (item.link, item.ref, len(item.tasks), item.in_place),
    inputs.Yielded: lambda item: (item.link, item.ref, item.index),
}  # fmt: skip
"""Of inputs that may hold much: what is kept of them."""


def entry(item: inputs.Input, now: inputs.Moment) -> Entry:
    """What to remember of an input."""
    kind = type(item)
    gist = _GISTS.get(kind)
    return now.mono, kind, item if gist is None else gist(item)


def describe(entries: Iterable[Entry]) -> str:
    """One line for each entry."""
    return "\n".join(f"{at:.3f} {kind.__name__} {_words(kept)}" for at, kind, kept in entries)


def _words(kept: Any) -> str:
    if isinstance(kept, tuple):
        return " ".join(map(_word, kept))
    named = ((name, getattr(kept, name, None)) for name in _NAMES)
    return " ".join(f"{name}={_word(value)}" for name, value in named if value is not None)


def _word(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
