"""Option type for directories named on the command line.

Used by several commands. It is not in `options`, because that must not import pathlib for `kiln
--help`.
"""

from pathlib import Path
from typing import Any

import click


class Directory(click.Path):
    """Option type of the path of an existing or new directory.

    Converts to Path; refuses "", which would be the current directory.
    """

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=False, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path of the directory. Fails for an empty text."""
        if not str(value):
            self.fail("a directory's name is missing: is a variable empty?", param, ctx)
        return super().convert(value, param, ctx)
