"""Directories named on the command line. Used by `up` and `down`.

Apart from `options`, because that must not load pathlib for `kiln --help`.
"""

from pathlib import Path
from typing import Any

import click


class Directory(click.Path):
    """A directory, there or to be made. Gives Path; refuses "", which would be the current one."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=False, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if not str(value):
            self.fail("a directory's name is missing: is a variable empty?", param, ctx)
        return super().convert(value, param, ctx)
