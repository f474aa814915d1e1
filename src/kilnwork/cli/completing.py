"""What the shell may complete after a command: kinds, files, names of objects the server has.

Used as `shell_complete` by commands, so only when somebody presses Tab. Never says why it found
nothing: a prompt is no place for errors.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import click
from click.shell_completion import CompletionItem

from kilnwork.api import kinds as api_kinds
from kilnwork.api import resource
from kilnwork.cli import journal, kinds, session
from kilnwork.kit import errors

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_NEWEST = 100
"""Tasks that are no objects are many: only so many are offered."""

_ANSWER_S = 1.0
"""How long a server may take; whoever pressed Tab waits for it."""


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def of_kind(served: resource.Resource) -> Completer:
    def names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(_names(ctx, served), incomplete)

    return names


def tasks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of Task objects, names and ids of the newest tasks that are none."""

    async def ask(s: session.Session) -> list[str]:
        async with asyncio.timeout(_ANSWER_S):
            found = [item async for item in journal.listed(s, wanted={}, limit=_NEWEST)]
        return [item["name"] if item["declared"] else _called(item) for item in found]

    names = [*_names(ctx, api_kinds.TASKS), *_asked(ctx, ask)]
    return _items(list(dict.fromkeys(names)), incomplete)


def _called(item: journal.Item) -> str:
    return str(item.get("name") or item["id"])


def file_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids of the newest file jobs."""
    return _items(_file_jobs(ctx), incomplete)


def _file_jobs(ctx: click.Context) -> list[str]:
    async def ask(s: session.Session) -> list[str]:
        async with asyncio.timeout(_ANSWER_S):
            page = await s.exchange(
                "GET", "/jobs", query={"namespace": s.one_namespace(), "limit": str(_NEWEST)}
            )
        found = session.decoded(page)
        names = dict.fromkeys(str(item["name"]) for item in found if item.get("name"))
        return [*names, *(str(item["id"]) for item in found)]

    return _asked(ctx, ask)


def objects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A kind first, then names of that kind; KIND/NAME in one word."""
    words = ctx.params.get("words") or ()
    kind, slash, _name = incomplete.partition("/")
    if slash and kind in kinds.FILE_JOBS:
        return _items([f"{kind}/{name}" for name in _file_jobs(ctx)], incomplete)
    if words and words[0] in kinds.FILE_JOBS:
        return _items(_file_jobs(ctx), incomplete)
    if slash:
        return _items(
            [f"{kind}/{name}" for one in _meant(kind) for name in _names(ctx, one)], incomplete
        )
    if words:
        return _items([name for one in _meant(words[0]) for name in _names(ctx, one)], incomplete)
    return _items(["all", *(r.plural for r in api_kinds.ALL), kinds.FILE_JOBS[1]], incomplete)


def subjects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of tasks and file jobs, or KIND/NAME in one word."""
    if "/" in incomplete:
        return objects(ctx, _, incomplete)
    return [*tasks(ctx, _, incomplete), *file_jobs(ctx, _, incomplete)]


def _meant(word: str) -> tuple[resource.Resource, ...]:
    found = kinds.named(word, api_kinds.ALL)
    return found if len(found) == 1 else ()


def _items(words: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _names(ctx: click.Context, served: resource.Resource) -> list[str]:
    """Names of one kind in the namespace of the command line so far; nothing without a server."""

    async def ask(s: session.Session) -> list[str]:
        async with asyncio.timeout(_ANSWER_S):
            return [str(item["metadata"]["name"]) for item in await s.items(s.path(served))]

    return _asked(ctx, ask)


def _asked(
    ctx: click.Context, ask: Callable[[session.Session], Coroutine[Any, Any, list[str]]]
) -> list[str]:
    with contextlib.suppress(errors.KilnError, OSError), ctx.scope(cleanup=False):
        return session.run(ask)
    return []
