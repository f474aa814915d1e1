"""The objects behind a DataPond."""

from typing import Any

import pytest

from kilnwork.api import data_pond, meta, names
from kilnwork.controllers.data_pond import pods

LOCAL = pods.PondPodSettings(
    manager="http://m", command=("agent",), image="i", root="/home/ponds", local=True
)
FAR = pods.PondPodSettings(manager="https://m", command=("agent",), image="i:1", ca=b"CA")


def pond(**spec: Any) -> data_pond.DataPond:
    metadata = meta.ObjectMeta(name="lake", namespace="quant", uid="u")
    return data_pond.DataPond(metadata=metadata, spec=data_pond.DataPondSpec(**spec))


def made(settings: pods.PondPodSettings = FAR, *, version: str = "1", **spec: Any) -> Any:
    return pods.pod(pond(**spec), settings, node="n1", secret_version=version)


def mounts(body: Any) -> dict[str, bool]:
    (container,) = body["spec"]["containers"]
    return {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}


def test_names_fit_into_labels_and_differ() -> None:
    assert pods.pod_name("lake", "n1") == "lake-n1"
    long = {pods.pod_name("lake", "n" * 60 + end) for end in ("a", "b")}
    assert len(long) == 2
    assert all(names.is_dns_label(name) for name in long)
    assert pods.secret_name("lake") == "lake-pond"


@pytest.mark.parametrize(
    ("path", "root"),
    [(None, "/home/ponds/quant/lake"), ("/data/pond/", "/data/pond")],
)
def test_root_directory_of_a_pond(path: str | None, root: str) -> None:
    assert pods.root(pond(path=path), LOCAL) == root


def test_digest_changes_with_template_and_secret() -> None:
    digests = {
        pods.digest_of(body)
        for body in (made(), made(version="2"), made(path="/x"), made(LOCAL), made())
    }
    assert len(digests) == 4


def test_files_of_sources_are_mounted_once_and_read_only() -> None:
    sources = tuple(
        data_pond.PondSource(name=f"s{n}", uri=uri)
        for n, uri in enumerate(["file:///data/a%20b", "file:///data/a%20b/c", "https://x/"])
    )
    found = mounts(made(sources=sources))
    assert found["/data/a b"] is True
    assert "/data/a b/c" not in found


def test_secrets_of_sources_are_mounted() -> None:
    source = data_pond.PondSource(name="web", uri="https://x/", secret_name="s")
    assert mounts(made(sources=(source,)))[f"{pods.SOURCES_DIRECTORY}/web"] is True


def test_secret_has_a_ca_only_if_the_manager_has_one() -> None:
    def variables(body: Any) -> set[str]:
        return {one["name"] for one in body["spec"]["containers"][0]["env"]}

    assert variables(made()) - variables(made(LOCAL)) == {"KILN_CA_FILE"}
    assert variables(made(LOCAL)) - variables(made()) == {"KILN_POND_ABSENCE_S"}
    assert pods.ca_data(LOCAL) == {}
    assert len(pods.ca_data(FAR)) == 1


@pytest.mark.parametrize(
    ("uri", "path"), [("file:///a%20b/", "/a b"), ("file:///", "/"), ("https://x/a", None)]
)
def test_file_path_of_a_uri(uri: str, path: str | None) -> None:
    assert pods.file_path(uri) == path
