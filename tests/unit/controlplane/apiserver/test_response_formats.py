"""The formats of responses, by what a client accepts."""

import pytest

from kilnwork.controlplane.apiserver import response_formats, statuses


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("*/*", "object"),
        ("application/json", "object"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json", "object"),
        ("application/vnd.kubernetes.protobuf,application/json", "object"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "partial"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "partial-list"),
        ("application/json, */*", "object"),
    ],
)
def test_format_follows_the_accept_header(accept: str, form: str) -> None:
    assert response_formats.negotiate_shape(accept, custom=False) == form


def test_unsupported_accept_header_is_not_acceptable() -> None:
    with pytest.raises(statuses.StatusError) as caught:
        response_formats.negotiate_shape("application/vnd.kubernetes.protobuf", custom=False)
    assert caught.value.code == 406


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("application/yaml", response_formats.YAML),
        ("application/json;q=0.5,application/yaml", response_formats.YAML),
        ("application/json,application/yaml", response_formats.JSON),
        ("text/html", response_formats.JSON),
        ("application/json;q=x", response_formats.JSON),
    ],
)
def test_yaml_is_sent_only_if_preferred(accept: str, media: str) -> None:
    assert response_formats.error_media_type(accept) == media
