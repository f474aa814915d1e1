"""Bodies: what is decoded, and that a bad body ends only its own request."""

import pytest

from kilnwork.controlplane.apiserver import bodies, statuses

JSON, YAML = "application/json", "application/yaml"


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def refusal(raw: bytes, content_type: str) -> statuses.StatusError:
    with pytest.raises(statuses.StatusError) as raised:
        bodies.decode_object(raw, content_type)
    return raised.value


def test_json_and_yaml_are_decoded() -> None:
    assert bodies.decode_object(b'{"kind":"Pod"}', JSON) == {"kind": "Pod"}
    assert bodies.decode_object(b"kind: Pod\n", YAML) == {"kind": "Pod"}


def test_unknown_media_type_is_unsupported() -> None:
    assert refusal(b"", "application/cbor").code == 415


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b'"x"', b'{"a":"\xff\xfe"}'])
def test_invalid_json_object_is_a_bad_request(raw: bytes) -> None:
    assert refusal(raw, JSON).code == 400


@pytest.mark.parametrize("raw", [b"[", b"a: 1\n---\nb: 2\n", b"? [a, b]\n: 1\n", b"\xff\xfe\xff"])
def test_invalid_yaml_object_is_a_bad_request(raw: bytes) -> None:
    assert refusal(raw, YAML).code == 400


def test_yaml_tags_execute_no_code() -> None:
    assert refusal(b'!!python/object/apply:os.system ["true"]', YAML).code == 400


@pytest.mark.parametrize("content_type", [JSON, YAML])
def test_nesting_beyond_the_limit_is_rejected(content_type: str) -> None:
    assert "a" in bodies.decode_object(nested(bodies.MAX_DEPTH), content_type)
    for levels in (bodies.MAX_DEPTH + 1, 10_000, 200_000):
        assert "levels deep" in refusal(nested(levels), content_type).message


def test_many_siblings_are_not_deep_nesting() -> None:
    wide = b'{"a":[' + b",".join([b"{}"] * 1000) + b"]}"

    assert len(bodies.decode_object(wide, JSON)["a"]) == 1000


def test_yaml_alias_expansion_is_bounded() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )

    assert "aliasing" in refusal(bomb.encode(), YAML).message
    assert bodies.decode_object(b"a: &a [1]\nb: *a\n", YAML) == {"a": [1], "b": [1]}


def test_yaml_only_values_become_json() -> None:
    read = bodies.decode_object(b"a: 2001-01-01\n1: x\n", YAML)

    assert read == {"a": "2001-01-01", "1": "x"}
