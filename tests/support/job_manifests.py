"""Manifests of Jobs and JobConfigs that every API server must accept."""

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_suffix(".yaml")


def all_manifests() -> list[dict[str, Any]]:
    """Return the manifests, in the order of the file."""
    return list(yaml.safe_load_all(FILE.read_text()))


def title(manifest: dict[str, Any]) -> str:
    """Return the name of a manifest, for test ids."""
    metadata = manifest["metadata"]
    return str(metadata.get("name") or metadata["generateName"].rstrip("-"))
