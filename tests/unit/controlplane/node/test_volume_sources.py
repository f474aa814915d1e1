"""From the volumes of a Pod to what they need."""

from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import container_input_types, errors, pod_types, volume_sources


def pod(*volumes: dict[str, Any]) -> pod_types.Pod:
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": list(volumes)}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, pod_types.Pod)


@pytest.mark.parametrize(
    ("volume", "keeps"),
    [
        ({"name": "v"}, True),
        ({"name": "v", "emptyDir": {}}, True),
        ({"name": "v", "hostPath": {"path": "/d"}}, True),
        ({"name": "v", "secret": {"secretName": "s"}}, False),
        ({"name": "v", "projected": {"sources": []}}, False),
    ],
)
def test_empty_dir_and_host_path_are_container_owned(
    volume: dict[str, Any], *, keeps: bool
) -> None:
    assert volume_sources.is_container_owned(volume) is keeps


def test_wanted_objects_and_tokens_cover_every_source() -> None:
    sources = [
        {"configMap": {"name": "c", "optional": True}},
        {"serviceAccountToken": {"path": "t", "audience": "a", "expirationSeconds": 700}},
    ]
    found = pod(
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "p", "projected": {"sources": sources}},
    )
    assert list(volume_sources.wanted(found)) == [
        container_input_types.ObjectWant("Secret", "s", False),
        container_input_types.ObjectWant("ConfigMap", "c", True),
    ]
    assert list(volume_sources.tokens(found)) == [container_input_types.TokenWant("a", 700)]


def test_host_path_is_none_for_other_volumes() -> None:
    place = volume_sources.host_path({"name": "v", "hostPath": {"path": "/d"}})
    assert place is not None
    assert place.path == "/d"
    assert volume_sources.host_path({"name": "v", "emptyDir": {}}) is None


def test_unsupported_volume_type_is_named() -> None:
    with pytest.raises(errors.Unsupported, match='volume "v" is of type nfs'):
        volume_sources.check(pod({"name": "v", "nfs": {}}))
    with pytest.raises(errors.Unsupported, match='"a/b" is not a valid volume name'):
        volume_sources.check(pod({"name": "a/b"}))
    volume_sources.check(pod({"name": "v"}, {"name": "h", "hostPath": {"path": "/d"}}))
