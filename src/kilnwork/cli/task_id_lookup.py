"""Lookup of a task by the first or last digits of its id, as `kiln tasks` shows them.

Used by the commands that take tasks, before they look for an object of that name. The manager finds
tasks by the beginning or end of their ids; see `server.task_api`.
"""

from kilnwork.api import kinds as api_kinds
from kilnwork.cli import errors, kinds, session
from kilnwork.kit import ids
from kilnwork.kube import errors as kube_errors


async def resolve(s: session.Session, word: str) -> str:
    """Return the name or id of the task that a command-line argument names.

    If the argument is the first or last digits of a task id, return the name of the Task object, or
    the whole id of any other task. Return any other argument, and digits of no id, unchanged.
    Raises `kube.errors.Conflict` if several ids have the digits.
    """
    kind, slash, name = word.rpartition("/")
    if slash and kinds.find_resources(kind, api_kinds.ALL) != (api_kinds.TASKS,):
        return word
    if ids.abbreviated(name) is None or await _is_object(s, name):
        return word
    try:
        found = await s.get_json(s.tasks_path(name))
    except kube_errors.Conflict:
        raise
    except errors.SERVER_ERRORS:
        return word  # the request for the named object reports the error
    return f"{kind}{slash}{found['name'] if found['declared'] else found['id']}"


async def _is_object(s: session.Session, name: str) -> bool:
    try:
        await s.ask("GET", s.path(api_kinds.TASKS, name, namespace=s.one_namespace()))
    except errors.SERVER_ERRORS:
        return False
    return True
