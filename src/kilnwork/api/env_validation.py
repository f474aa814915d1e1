"""Rules for the environment variables of a task (`env`).

Used by validation and by the Python library. No I/O.
"""

import re
from collections.abc import Iterator, Sequence

from kilnwork.api import env_sources, names, task

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
OURS = "KILN_"
"""Prefix of the variables of the worker contract."""


def problems(env: Sequence[task.EnvVar]) -> Iterator[tuple[str, str]]:
    """Yield the problems of the environment variables of a spec, by field."""
    for position, variable in enumerate(env):
        at = f"spec.env[{position}]"
        if "\0" in variable.value:
            yield f"{at}.value", env_sources.NUL
        if variable.value_from is None:
            continue
        if variable.value:
            yield f"{at}.valueFrom", "may not stand beside value"
        given = env_sources.references_of(variable.value_from)
        if len(given) != 1:
            yield f"{at}.valueFrom", "needs exactly one of secretKeyRef and configMapKeyRef"
        for field, ref in given.items():
            if wrong := names.subdomain_problem(ref.name):
                yield f"{at}.valueFrom.{field}.name", wrong
            if not _KEY.fullmatch(ref.key):
                why = "must consist of letters, digits, - _ and ."
                yield f"{at}.valueFrom.{field}.key", f"{why}, not {ref.key!r}"


def call_problems(env: Sequence[task.EnvVar]) -> Iterator[tuple[str, str]]:
    """Yield the variables that a Python call may not set: its process has those of the worker."""
    for position, variable in enumerate(env):
        if variable.name.startswith(OURS):
            why = f"must not begin with {OURS} for a Python call: those are the worker's own"
            yield f"spec.env[{position}].name", why
