"""Parsed JSON with variables in its strings, prepared for fast rendering.

Part of `job_task_rendering`: the template of a Job's tasks is rendered for each of up to a million
indexes. Values that are the same for all indexes are substituted once. The rules are those of
`substitution`.
"""

import abc
from collections.abc import Collection, Mapping
from typing import Any

from kilnwork.api import json_limits, substitution

Variable = substitution.Variable


class Rendering:
    """The values of one rendering, and how many characters may still be inserted."""

    __slots__ = ("_left", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self._left = substitution.MAX_SIZE

    def spend(self, characters: int) -> None:
        """Count characters before they are inserted; raises LimitExceeded."""
        self._left -= characters
        if self._left < 0:
            limit = substitution.MAX_SIZE
            raise json_limits.LimitExceeded(f"has more than {limit} characters once substituted")


class Prepared(abc.ABC):
    """JSON with missing values."""

    __slots__ = ()

    @abc.abstractmethod
    def render(self, rendering: Rendering) -> Any:
        """Return the JSON with its values.

        Parts without variables are the same object each time. Raises LimitExceeded.
        """


class Preparation:
    """Prepares JSON templates, so that they can be rendered fast many times (`Prepared`).

    The templates must be valid (`substitution.find_problems`). `shared`: values that are inserted
    now, and take precedence over later values of the same name. `later`: the names of the values
    that each rendering supplies. `again`: whether the rendered strings are substituted a second
    time elsewhere, so that other variables are kept and inserted values are escaped. `text_fields`:
    the names of fields below which values become text.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        later: Collection[str],
        *,
        again: bool = False,
        text_fields: Collection[str] = (),
    ) -> None:
        self._shared = shared
        self._later = later
        self._again = again
        self._text_fields = text_fields
        self._now = Rendering({})

    def prepare(self, template: Any, *, texts: bool = False) -> Any:
        """Return a Prepared, or the JSON itself if no values are missing.

        `texts`: whether all values become text. Raises LimitExceeded.
        """
        if isinstance(template, str):
            return self._text(template, texts=texts)
        if isinstance(template, dict):
            members = {
                key: self.prepare(value, texts=texts or key in self._text_fields)
                for key, value in template.items()
            }
            return _Members.of(members)
        if isinstance(template, list | tuple):
            return _Items.of([self.prepare(value, texts=texts) for value in template])
        return template

    def _text(self, text: str, *, texts: bool) -> Any:
        if "${" not in text:
            return text
        parts = substitution.split(text)
        if len(parts) == 1 and isinstance(parts[0], Variable) and not texts:
            return self._value(parts[0])
        known: list[str | Variable] = []
        for part in parts:
            if isinstance(part, Variable) and part.name in self._shared:
                value = substitution.to_text(self._shared[part.name])
                self._now.spend(len(value))
                known.append(value)
            else:
                known.append(part)
        if any(isinstance(part, Variable) and part.name in self._later for part in known):
            return _Escaped(known, self._later) if self._again else _Joined(known)
        return substitution.join(known) if self._again else "".join(map(str, known))

    def _value(self, variable: Variable) -> Any:
        """Prepare a string that consists of a single variable: the value keeps its type."""
        if variable.name in self._shared:
            value = self._shared[variable.name]
            self._now.spend(len(substitution.to_text(value)))
            return escape_value(value) if self._again else value
        if variable.name in self._later:
            return _Whole(variable.name, again=self._again)
        return substitution.join([variable])


def escape_value(value: Any) -> Any:
    """Return a value that substitution converts to `value`."""
    if isinstance(value, str):
        return substitution.escape(value)
    if isinstance(value, dict):
        return {key: escape_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [escape_value(one) for one in value]
    return value


class _Joined(Prepared):
    """A string that is not substituted again."""

    __slots__ = ("_fixed", "_names")

    def __init__(self, parts: list[str | Variable]) -> None:
        self._fixed = [part if isinstance(part, str) else "" for part in parts]
        self._names = [(n, part.name) for n, part in enumerate(parts) if isinstance(part, Variable)]

    def render(self, rendering: Rendering) -> str:
        pieces = self._fixed.copy()
        values = rendering.values
        for position, name in self._names:
            value = values[name]
            written = value if type(value) is str else substitution.to_text(value)
            rendering.spend(len(written))
            pieces[position] = written
        return "".join(pieces)


class _Escaped(Prepared):
    """A string that is substituted again later, by which some of its variables are replaced."""

    __slots__ = ("_later", "_parts")

    def __init__(self, parts: list[str | Variable], later: Collection[str]) -> None:
        self._parts = parts
        self._later = later

    def render(self, rendering: Rendering) -> str:
        pieces: list[str | Variable] = []
        for part in self._parts:
            if isinstance(part, Variable) and part.name in self._later:
                value = substitution.to_text(rendering.values[part.name])
                rendering.spend(len(value))
                pieces.append(value)
            else:
                pieces.append(part)
        return substitution.join(pieces)


class _Whole(Prepared):
    """A value that keeps its type."""

    __slots__ = ("_again", "_name")

    def __init__(self, name: str, *, again: bool) -> None:
        self._name = name
        self._again = again

    def render(self, rendering: Rendering) -> Any:
        value = rendering.values[self._name]
        if type(value) is not int:
            rendering.spend(len(substitution.to_text(value)))
        return escape_value(value) if self._again else value


class _Items(Prepared):
    """A list with items in which values are missing."""

    __slots__ = ("_changing", "_fixed")

    def __init__(self, items: list[Any]) -> None:
        self._fixed = items
        self._changing = [(n, item) for n, item in enumerate(items) if isinstance(item, Prepared)]

    @classmethod
    def of(cls, items: list[Any]) -> Any:
        return cls(items) if any(isinstance(item, Prepared) for item in items) else items

    def render(self, rendering: Rendering) -> list[Any]:
        made = self._fixed.copy()
        for position, item in self._changing:
            made[position] = item.render(rendering)
        return made


class _Members(Prepared):
    """An object with members in which values are missing."""

    __slots__ = ("_changing", "_fixed")

    def __init__(self, members: dict[str, Any]) -> None:
        self._fixed = members
        self._changing = [(k, one) for k, one in members.items() if isinstance(one, Prepared)]

    @classmethod
    def of(cls, members: dict[str, Any]) -> Any:
        return cls(members) if any(isinstance(o, Prepared) for o in members.values()) else members

    def render(self, rendering: Rendering) -> dict[str, Any]:
        made = self._fixed.copy()
        for key, member in self._changing:
            made[key] = member.render(rendering)
        return made
