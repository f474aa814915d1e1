"""Continue tokens: what goes in comes out, and what is none is refused by its reason."""

import base64

import pytest

from kilnwork.controlplane import store_types
from kilnwork.controlplane.apiserver import continue_tokens, statuses


def token(document: str) -> str:
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


@pytest.mark.parametrize(("namespace", "name"), [("ns", "a.b-c"), ("", "node")])
def test_token_holds_sequence_and_position(namespace: str, name: str) -> None:
    made = continue_tokens.encode(17, store_types.Key("pods", namespace, name))
    assert "=" not in made
    assert continue_tokens.decode(made) == continue_tokens.ListPosition(17, (namespace, name))


def test_expired_error_contains_a_token_to_continue() -> None:
    error = continue_tokens.expired(("ns", "a"))
    assert (error.code, error.reason) == (410, "Expired")
    fresh = error.document()["metadata"]["continue"]
    assert continue_tokens.decode(fresh) == continue_tokens.ListPosition(None, ("ns", "a"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("*", "illegal base64 data at input byte 0"),
        ("abcde", "illegal base64 data at input byte 4"),
        (token("[]"), "Expected `object`, got `array`"),
        (token('{"v":"other","rv":1}'), "server does not recognize this encoded version other"),
        (token('{"v":"meta.k8s.io/v1"}'), "incorrect encoded start resourceVersion"),
        (token('{"v":"meta.k8s.io/v1","rv":"x"}'), "Expected `int`"),
        (token("\x00\xff"), "malformed"),
    ],
)
def test_invalid_token_is_a_bad_request(given: str, why: str) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        continue_tokens.decode(given)
    assert caught.value.code == 400
    assert caught.value.message.startswith("invalid continue token: continue key is not valid: ")
    assert why in caught.value.message
