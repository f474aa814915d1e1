"""Kubeconfig files merge as kubectl merges them, and one context is chosen."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kilnwork.kit import errors
from kilnwork.kube import kubeconfig


def content(server: str, *, current: str = "x", **context: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": f"token of {server}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": current,
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_the_first_file_to_name_a_thing_wins_with_its_directory(tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "config", {"clusters": content("one")["clusters"]})
    second = write(tmp_path / "b" / "config", content("two"))
    chosen = kubeconfig.read([first, second])
    assert (chosen.cluster.server, chosen.cluster_directory) == ("one", first.parent)
    assert (chosen.user.token, chosen.user_directory) == ("token of two", second.parent)
    assert chosen.where == f"kubeconfig {first}, {second}"


def test_first_current_context_is_the_default(tmp_path: Path) -> None:
    other = content("two", current="y")
    other["contexts"][0]["name"] = "y"
    other["contexts"][0]["context"]["namespace"] = "team"
    files = [write(tmp_path / "a", content("one", current="")), write(tmp_path / "b", other)]
    assert kubeconfig.read(files).namespace == "team"
    assert kubeconfig.read(files, context="x").namespace == "default"
    write(files[0], content("one"))
    assert kubeconfig.read(files).namespace == "default"


def test_absent_and_empty_files_are_skipped(tmp_path: Path) -> None:
    files = [
        tmp_path / "absent",
        write(tmp_path / "empty", " \n"),
        write(tmp_path / "c", content("s")),
    ]
    assert kubeconfig.read(files).cluster.server == "s"


def test_a_context_without_a_user_shows_nothing(tmp_path: Path) -> None:
    chosen = kubeconfig.read([write(tmp_path / "c", content("s", user=""))])
    assert chosen.user == kubeconfig.AuthInfo()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "does not exist: start a server with `kiln up`"),
        ("[]", "is not a kubeconfig: "),
        ("{", "is not a kubeconfig: "),
        ({}, r"has no current-context \(contexts: none\)"),
        (content("s", current="z"), r'has no context "z" \(contexts: x\)'),
        (content("s", cluster="z"), r'names cluster "z", which is not there \(clusters: c\)'),
        (content("s", user="z"), r'names user "z", which is not there \(users: u\)'),
    ],
)
def test_unusable_kubeconfig_is_refused_with_the_reason(
    tmp_path: Path, document: Any, message: str
) -> None:
    path = tmp_path / "config"
    if document is not None:
        write(path, document)
    with pytest.raises(errors.ConfigurationError, match=message) as refused:
        kubeconfig.read([path])
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        (None, None),
        ([], None),
        ([kubeconfig.Extension("other", 1)], None),
        ([kubeconfig.Extension("other", 1), kubeconfig.Extension(kubeconfig.EXEC_EXTENSION, 2)], 2),
    ],
)
def test_plugins_are_given_only_the_extension_that_is_theirs(
    extensions: list[kubeconfig.Extension] | None, expected: Any
) -> None:
    assert kubeconfig.EXEC_EXTENSION == "client.authentication.k8s.io/exec"
    assert kubeconfig.Cluster(extensions=extensions).exec_config() == expected
