"""Lookup of the kind that a command-line argument names.

The argument is a plural, singular or short name, `plural.group`, a kind or a category. Used,
through the session, by every command that names objects. Known kinds need no request; others are
looked up by discovery, so that `kiln get` and `kiln apply` work with everything that a server
serves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kilnwork.api import api_resources
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors

FILE_JOBS = ("file", "files", "filejob", "filejobs")
"""Words for file jobs, which are not a Kubernetes kind; see `file_job_lookup`."""

ELSEWHERE = "What `kiln upload` has made is called file/NAME, and listed by `kiln files`"
"""Hint for users who look for a file job among the Jobs."""

CATEGORY = "kiln"
"""Category of kilnwork's kinds; `kiln` treats `all` as the same."""


class Asker(Protocol):
    """Interface of a client that sends the requests of discovery."""

    async def get_json(self, path: str) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Reference to an object, or to all objects of a kind, as named on the command line.

    `name`: None for all objects of the kind.
    """

    resource: api_resources.Resource
    name: str | None


def find_resources(
    word: str, among: Iterable[api_resources.Resource]
) -> tuple[api_resources.Resource, ...]:
    """Return those of the given resources that `word` names.

    A category gives several resources, an unknown word none.
    """
    known = tuple(among)
    text = word.lower()
    exact = [
        r
        for r in known
        if text in (r.plural, r.singular, r.kind.lower(), r.qualified, *r.short_names)
        or text == f"{r.singular}.{r.group}"
    ]
    if exact:
        return (exact[0],)
    category = CATEGORY if text == "all" else text
    return tuple(r for r in known if category in r.categories)


def task_name(word: str) -> str:
    """Return the name or id of the task that a command-line argument names.

    The argument is `NAME`, or `KIND/NAME` as `-o name` prints it. The name of a spawned task may
    contain a slash. Raises `errors.InvalidInput` for another kind.
    """
    kind, slash, name = word.partition("/")
    meant = find_resources(kind, api_kinds.ALL) if slash else ()
    if not meant:
        return word
    if meant != (api_kinds.TASKS,):
        raise errors.InvalidInput(f"{word} is not a task" + _HINTS.get(meant[0].kind, ""))
    return name


def unknown_kind(word: str) -> str:
    """Return an error text if the KIND in `KIND/NAME` is not a kind of kilnwork, or "".

    Use it only after no task was found: the name of a spawned task may contain a slash.
    """
    kind, slash, name = word.partition("/")
    if not slash or kind.lower() in FILE_JOBS or find_resources(kind, api_kinds.ALL):
        return ""
    return (
        f'there is no task "{word}", and {kind!r} is not a kind that this command accepts: write '
        f"{name} or, with its kind, {', '.join(f'{one}/{name}' for one in _WITH_TASKS)}"
    )


_WITH_TASKS = ("task", "job", "syncset", "file")
"""Kinds that commands accept in the place of a task."""

_HINTS = {
    "Pod": ": `kubectl logs` shows what a Pod printed, `kiln delete` ends it",
    "TaskCluster": ": `kiln scale` changes how many workers it has, `kiln delete` ends them",
    "JobConfig": ": `kiln disable` lets its schedule make no Jobs; job/NAME is one that it made",
    "DataPond": ": `kiln data` shows what it holds, `kiln delete` removes it",
}
"""Hints for objects of other kinds where a task is expected."""


class Kinds:
    """Lookup of kinds by word; it uses the server's discovery only for unknown words."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._known: tuple[api_resources.Resource, ...] = api_kinds.ALL
        self._discovered = False

    async def find(self, word: str) -> tuple[api_resources.Resource, ...]:
        """Return the resources that `word` names.

        Raises `errors.InvalidInput` for an unknown word.
        """
        found = find_resources(word, self._known)
        if not found and not self._discovered:
            await self._discover()
            found = find_resources(word, self._known)
        if not found:
            known = ", ".join(r.plural for r in self._known)
            raise errors.InvalidInput(f"the server knows no kind {word!r}. It knows: {known}")
        return found

    async def of(self, api_version: str, kind: str) -> api_resources.Resource:
        """Return the resource for the apiVersion and kind of an object.

        Raises `errors.InvalidInput` if the server does not serve it.
        """
        for again in (False, True):
            for known in self._known:
                if (known.api_version, known.kind) == (api_version, kind):
                    return known
            if again or self._discovered:
                break
            await self._discover()
        near = [r.api_version for r in self._known if r.kind == kind]
        hint = f" (it serves {kind} as {near[0]})" if near else ""
        raise errors.InvalidInput(f"the server serves no kind {kind} in {api_version}{hint}")

    async def refs(self, words: Sequence[str]) -> list[ObjectRef]:
        """Return references to the objects that command-line arguments name.

        The arguments are `KIND[,KIND…] [NAME…]` or `KIND/NAME…`; a kind alone gives a reference
        without a name.
        """
        if any("/" in word for word in words):
            return [await self._slashed(word) for word in words]
        found = [r for word in words[0].split(",") for r in await self.find(word)]
        names: Sequence[str | None] = words[1:] or (None,)
        return [ObjectRef(one, name) for one in found for name in names]

    async def _slashed(self, word: str) -> ObjectRef:
        kind, slash, name = word.partition("/")
        if not slash or not kind or not name or "/" in name:
            raise errors.InvalidInput(f"{word!r}: write KIND/NAME for each, or KIND NAME NAME…")
        found = await self.find(kind)
        if len(found) > 1:
            raise errors.InvalidInput(f"{word!r}: {kind} is a category, not a kind")
        return ObjectRef(found[0], name)

    async def _discover(self) -> None:
        self._discovered = True
        groups = await self._asker.get_json("/apis")
        paths = ["/api/v1"]
        paths += [f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups["groups"]]
        extra = [r for path in paths for r in _served(await self._asker.get_json(path))]
        known = {(r.api_version, r.kind) for r in self._known}
        self._known += tuple(r for r in extra if (r.api_version, r.kind) not in known)


def _served(document: dict[str, Any]) -> list[api_resources.Resource]:
    group, _, version = document["groupVersion"].rpartition("/")
    return [
        api_resources.Resource(
            group=group,
            version=version,
            kind=entry["kind"],
            plural=entry["name"],
            singular=entry.get("singularName") or entry["kind"].lower(),
            namespaced=entry["namespaced"],
            short_names=tuple(entry.get("shortNames") or ()),
            categories=tuple(entry.get("categories") or ()),
        )
        for entry in document["resources"]
        if "/" not in entry["name"]
    ]
