"""What the REST API needs of others, declared here and wired by the composition root."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kilnwork.dispatch import model
from kilnwork.kit import ids


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May somebody do this to tasks of a namespace? `name` is empty for all of them."""

    verb: str
    namespace: str
    name: str = ""
    subresource: str = ""


class Rights(Protocol):
    """Who may do what: Kubernetes' own authorization."""

    async def refusal(self, user: Any, question: Question) -> str | None:
        """None when `user` (`scope["kiln.user"]`) may, else the sentence that says why not."""
        ...


class Page(msgspec.Struct, frozen=True):
    """Some tasks, newest first. `more`: what to ask for the next page with, None at the end."""

    tasks: Sequence[model.TaskView]
    more: int | None


class Journal(Protocol):
    """Reading tasks, and asking for one to be stopped. Reads may be repeated and do not block."""

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task, None when it is unknown."""
        ...

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """The newest task of that name, None when there is none."""
        ...

    def tasks(self, namespace: str, *, limit: int, below: int | None) -> Page:
        """At most `limit` tasks of a namespace; `below` is `more` of the page before."""
        ...

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept; the file may not exist."""
        ...

    async def kill(self, task: ids.TaskId) -> None:
        """Ask for the task to be stopped, durably; nothing happens to one that is over."""
        ...
