"""Secrets of `kiln.start(secrets=DIRECTORY)`: one directory for each Secret, with a file for each
key.

Used by `process`. Kubernetes mounts Secrets in the same form. There are no ConfigMaps.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from kilnwork.api import env_sources
from kilnwork.kit import errors


class SecretsUnreadable(errors.KilnError):
    """A file of a Secret cannot be read now."""


class SecretFiles:
    """Reads Secrets from a directory (`hub.environment_variables.VariableSource`)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(
        self, namespace: str, source: env_sources.VariableSource
    ) -> Mapping[str, bytes] | None:
        """Return the values of one Secret by key, or None if there is no such Secret.

        Always returns None for a ConfigMap. Raises SecretsUnreadable.
        """
        if source.kind != "Secret":
            return None
        return await asyncio.to_thread(_read, self._directory / source.name)


def _read(directory: Path) -> dict[str, bytes] | None:
    """Read the values of one Secret by key, or return None if the directory does not exist.

    Hidden files are not keys: Kubernetes puts files of its own there (`..data`).
    """
    try:
        files = [one for one in directory.iterdir() if not one.name.startswith(".")]
        # Links are followed: in a mounted Secret each key is a link.
        return {file.name: file.read_bytes() for file in files if file.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SecretsUnreadable(f"Secret {directory.name}: {error}") from error
