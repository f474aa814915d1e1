"""Types of options that hold a selector: what cannot be read as one is wrong usage.

Used by `get` and `delete`. Apart from `options`, which every `--help` loads.
"""

from collections.abc import Callable
from typing import Any

import click

from kilnwork.api import selectors


class Selector(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """A selector that the API server will understand, as text. `example`: one that is right."""

    def __init__(self, name: str, parse: Callable[[str], object], *, example: str) -> None:
        self.name = name
        self._parse, self._example = parse, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text:
            self.fail(f"it is empty: write {self._example}, or leave it out", param, ctx)
        try:
            self._parse(text)
        except selectors.SelectorError as error:
            self.fail(f"{text[:200]!r}: {error}. Write it as {self._example}", param, ctx)
        return text


LABEL_SELECTOR = Selector(
    "labels",
    selectors.parse_labels,
    example="app=web, 'tier!=test', 'env in (a,b)', app or '!app', joined by commas",
)
FIELD_SELECTOR = Selector(
    "fields",
    selectors.parse_fields,
    example="metadata.name=x or 'status.phase!=Running', joined by commas",
)
