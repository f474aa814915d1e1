"""Secrets as directories: a file for each key, hidden files and ConfigMaps left out."""

from pathlib import Path

import pytest

from kilnwork.api import env_sources
from kilnwork.dispatch import local_secrets


def source(name: str, kind: str = "Secret") -> env_sources.VariableSource:
    return env_sources.VariableSource(kind, name)


async def test_each_file_is_a_key(tmp_path: Path) -> None:
    db = tmp_path / "db"
    (db / "deep").mkdir(parents=True)
    (db / "token").write_bytes(b"x\xff")
    (db / "..data").write_bytes(b"of Kubernetes")
    files = local_secrets.SecretFiles(tmp_path)
    assert await files.read("ns", source("db")) == {"token": b"x\xff"}
    assert await files.read("other", source("db")) == {"token": b"x\xff"}


async def test_missing_secret_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    files = local_secrets.SecretFiles(tmp_path)
    assert await files.read("ns", source("missing")) is None
    assert await files.read("ns", source("file")) is None
    assert await files.read("ns", source("file", "ConfigMap")) is None


async def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "db").symlink_to("db")
    with pytest.raises(local_secrets.SecretsUnreadable, match="Secret db: "):
        await local_secrets.SecretFiles(tmp_path).read("ns", source("db"))
