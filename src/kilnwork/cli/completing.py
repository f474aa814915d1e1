"""What the shell may complete after a command: kinds, files, names of objects the server has.

Used as `shell_complete` by commands, so only when somebody presses Tab. Never says why it found
nothing: a prompt is no place for errors.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
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


def pausable(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names and ids of file jobs, or KIND/NAME in one word."""
    return objects(ctx, _, incomplete) if "/" in incomplete else file_jobs(ctx, _, incomplete)


def job_options(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`NAME=` of the options of the JobConfig that stands before, and values to choose from."""
    # an option without its value, as here, keeps click from giving words to arguments
    word = ctx.params.get("config") or next(iter(ctx.args), "")
    config = str(word).rpartition("/")[2]

    async def ask(s: session.Session) -> list[str]:
        async with asyncio.timeout(_ANSWER_S):
            found = await s.ask("GET", s.path(api_kinds.JOB_CONFIGS, config))
        return list(_option_words(found))

    return _items(_asked(ctx, ask) if config else [], incomplete)


def _option_words(config: dict[str, Any]) -> Iterator[str]:
    for option in (config["spec"].get("option") or {}).get("options") or ():
        name, type_ = option["name"], option["type"]
        yield f"{name}="
        chosen = (option.get(type_.lower()) or {}).get("values") or ()
        yield from (f"{name}={value}" for value in (("yes", "no") if type_ == "Bool" else chosen))


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
