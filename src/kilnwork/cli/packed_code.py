"""Python code as a blob, which workers unpack and import from.

Used by `mappers`, `job_modules` and the command `deploy`, in the way in which
`kiln.connect(modules=…)` ships code: by digest, unpacked once by each worker.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kilnwork.cli import errors, session
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.sdk import code_packing


class PackedCode(NamedTuple):
    """Python code packed as a blob: its digest, its content, and the directories left out of it."""

    digest: str
    body: bytes
    left_out: tuple[Path, ...]


def pack(
    working_dir: Path | None, *, files: Sequence[Path] = (), modules: Sequence[str] = ()
) -> PackedCode:
    """Pack a directory, single files and modules into one blob. Raises `errors.InvalidInput`."""
    with tempfile.TemporaryDirectory(prefix="kiln-c-") as directory:
        kept = local_blobs.Blobs(Path(directory), durable=False)
        try:
            packed = code_packing.pack(working_dir, kept, files=files, modules=modules)
        except (data_errors.DataError, OSError) as error:
            raise errors.InvalidInput(f"the code cannot be sent: {error}") from error
        if packed.digest is None:
            raise errors.InvalidInput(f"--working-dir {working_dir}: it has no files")
        with open(kept.open(local_blobs.parse(packed.digest)), "rb") as file:  # noqa: PTH123
            body = file.read()
    return PackedCode(packed.digest, body, packed.left_out)


async def upload(s: session.Session, packed: PackedCode) -> None:
    """Upload packed code to the store from which workers fetch it. Raises a KubeError."""
    for directory in packed.left_out:
        click.echo(code_packing.NOT_SHIPPED.format(directory), err=True)
    path = f"/blobs/{session.quoted(s.one_namespace())}/{packed.digest}"
    await s.exchange("PUT", path, body=packed.body)
