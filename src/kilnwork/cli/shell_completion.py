"""Shell completion of arguments: kinds, files, and names of objects that the server has.

Used as `shell_complete` by commands, so only when a user presses Tab. Errors are ignored: they
would garble the prompt.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib import parse

import click
from click.shell_completion import CompletionItem

from kilnwork.api import api_resources, filejobs
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import completion_reads, kinds, options, task_lists
from kilnwork.endpoints import manager_client
from kilnwork.kit import errors

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_NEWEST = str(completion_reads.NEWEST)
Reader = completion_reads.QuickReader


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def of_kind(served: api_resources.Resource) -> Completer:
    def names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items(_asked(ctx, lambda reader: reader.names(served)), incomplete)

    return names


def tasks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of Task objects, and names or short ids of the newest other tasks."""
    return _items(_asked(ctx, lambda reader: _tasks(reader, incomplete)), incomplete)


def _tasks(reader: Reader, incomplete: str) -> list[str]:
    """Return names and short ids of the newest tasks, and whole ids if the user has typed
    something.
    """
    path = f"/v1/namespaces/{reader.namespace}/tasks"
    found = (reader.of_manager(path, {"limit": _NEWEST}) or {}).get("items") or []
    shown = task_lists.short_ids([item["id"] for item in found])
    known = [
        shown[item["id"]] if item["name"] == item["id"] else str(item["name"]) for item in found
    ]
    whole = [str(item["id"]) for item in found] if incomplete else []
    return [*reader.names(api_kinds.TASKS), *known, *whole]


def file_jobs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names and the ids of the newest file jobs."""
    return _items(_asked(ctx, lambda reader: _file_jobs(reader, incomplete)), incomplete)


def _file_jobs(reader: Reader, incomplete: str) -> list[str]:
    """Return names and short ids of the newest file jobs; whole ids if a digit was typed."""
    query = {"namespace": reader.namespace, "limit": _NEWEST}
    found = reader.of_manager("/jobs", query) or []
    names = [str(item["name"]) for item in found if item.get("name")]
    known = [str(item["id"]) for item in found]
    whole = incomplete[:1].isdigit()
    return [*names, *(known if whole else map(filejobs.short_id, known))]


def objects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a kind and then names of objects of that kind, or KIND/NAME in one word."""
    words: tuple[str, ...] = ctx.params.get("words") or ()
    kind, slash, _name = incomplete.partition("/")
    if slash and kind in kinds.FILE_JOBS:
        found = _asked(ctx, lambda reader: _file_jobs(reader, _name))
        return _items([f"{kind}/{name}" for name in found], incomplete)
    if words and words[0] in kinds.FILE_JOBS:
        return file_jobs(ctx, _, incomplete)
    if slash or words:
        found = _asked(ctx, lambda reader: _named(reader, kind if slash else words[0]))
        return _items([f"{kind}/{name}" if slash else name for name in found], incomplete)
    return _items(["all", *(r.plural for r in api_kinds.ALL), kinds.FILE_JOBS[1]], incomplete)


def subjects(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of tasks and file jobs, or KIND/NAME in one word."""
    if "/" in incomplete:
        return objects(ctx, _, incomplete)

    def ask(reader: Reader) -> list[str]:
        return [*_tasks(reader, incomplete), *_file_jobs(reader, incomplete)]

    return _items(_asked(ctx, ask), incomplete)


def job_options(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `NAME=` for the options of the JobConfig on the command line.

    Their allowed values are completed too.
    """
    # click assigns no words to arguments while an option lacks its value, as here
    word = ctx.params.get("config") or next(iter(ctx.args), "")
    config = str(word).rpartition("/")[2]

    def ask(reader: Reader) -> list[str]:
        path = f"{api_kinds.JOB_CONFIGS.base(reader.namespace)}/{parse.quote(config, safe='')}"
        found = reader.get(path)
        return list(_option_words(found.document())) if found.ok else []

    return _items(_asked(ctx, ask) if config else [], incomplete)


def _option_words(config: dict[str, Any]) -> Iterator[str]:
    for option in (config["spec"].get("option") or {}).get("options") or ():
        name, type_ = option["name"], option["type"]
        yield f"{name}="
        chosen = (option.get(type_.lower()) or {}).get("values") or ()
        yield from (f"{name}={value}" for value in (("yes", "no") if type_ == "Bool" else chosen))


def _meant(word: str) -> tuple[api_resources.Resource, ...]:
    found = kinds.find_resources(word, api_kinds.ALL)
    return found if len(found) == 1 else ()


def _items(words: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _named(reader: Reader, kind: str) -> list[str]:
    """Return the names of the objects of one kind; an empty list for a category."""
    return [name for served in _meant(kind) for name in reader.names(served)]


def _asked(ctx: click.Context, ask: Callable[[Reader], list[str]]) -> list[str]:
    """Call `ask` with a reader of the server that the command line names, and return its result.

    Return an empty list if that fails.
    """
    target = ctx.obj if isinstance(ctx.obj, options.ServerTarget) else options.ServerTarget()
    with (
        contextlib.suppress(errors.KilnError, OSError, manager_client.TryAgain),
        completion_reads.limit_time(),
    ):
        reader = Reader(target)
        try:
            return ask(reader)
        finally:
            reader.close()
    return []
