"""Option types for selectors; an invalid selector is a usage error.

Used by `get` and `delete`. Not in `options`, which every `--help` imports.
"""

from collections.abc import Callable

from kilnwork.api import selectors
from kilnwork.cli import options


def _selector(name: str, parse: Callable[[str], object], *, example: str) -> options.Parsed:
    """Return an option type that accepts selectors which the API server understands.

    `example`: a valid selector, for error messages.
    """

    def check(given: str) -> str:
        text = given.strip()
        if not text:
            raise ValueError(f"it is empty: write {example}, or leave it out")
        try:
            parse(text)
        except selectors.SelectorError as error:
            raise ValueError(f"{text[:200]!r}: {error}. Write it as {example}") from error
        return text

    return options.Parsed(name, check)


LABEL_SELECTOR = _selector(
    "labels",
    selectors.parse_labels,
    example="app=web, 'tier!=test', 'env in (a,b)', app or '!app', joined by commas",
)
FIELD_SELECTOR = _selector(
    "fields",
    selectors.parse_fields,
    example="metadata.name=x or 'status.phase!=Running', joined by commas",
)
