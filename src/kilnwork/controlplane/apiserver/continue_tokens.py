"""Continue tokens: where the next page of a list begins, and which moment it shows.

Used by `lists`. Opaque to clients; made as those of the real API server are, which is why a
corrupt one is refused in the same words (k8s.io/apiserver/pkg/storage/continue.go).
"""

import base64
import string

import msgspec

from kilnwork.controlplane import objects
from kilnwork.controlplane.apiserver import statuses

_VERSION = "meta.k8s.io/v1"
_LATEST = -1
_ALPHABET = frozenset(string.ascii_letters + string.digits + "-_")

_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


class ListPosition(msgspec.Struct, frozen=True):
    """Behind which (namespace, name) a page begins; `sequence` None: as it is now."""

    sequence: int | None
    after: tuple[str, str]


class _Token(msgspec.Struct, frozen=True):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode(sequence: int, last: objects.Key) -> str:
    """The token of the page behind `last`."""
    return _encode(sequence, (last.namespace, last.name))


def decode(token: str) -> ListPosition:
    """Where to go on; 400 for what is no token."""
    try:
        found = msgspec.json.decode(_bytes(token), type=_Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _invalid(f"continue key is not valid: {error}") from error
    if found.v != _VERSION:
        raise _invalid(
            f"continue key is not valid: server does not recognize this encoded version {found.v}"
        )
    if not found.rv:
        raise _invalid(
            "continue key is not valid: incorrect encoded start resourceVersion "
            "(version meta.k8s.io/v1)"
        )
    namespace, _, name = found.start.removesuffix("\0").partition("/")
    return ListPosition(None if found.rv == _LATEST else found.rv, (namespace, name))


def expired(after: tuple[str, str]) -> statuses.StatusError:
    """410 with a token that goes on at the same place, but as things are now."""
    fresh = {"continue": _encode(_LATEST, after)}
    return statuses.StatusError(410, "Expired", _INCONSISTENT, metadata=fresh)


def _encode(sequence: int, after: tuple[str, str]) -> str:
    token = _Token(_VERSION, sequence, f"{after[0]}/{after[1]}\0")
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _bytes(token: str) -> bytes:
    """Base64 without padding, refused as Go refuses it."""
    wrong = next((i for i, letter in enumerate(token) if letter not in _ALPHABET), None)
    if wrong is None and len(token) % 4 == 1:
        wrong = len(token) - 1
    if wrong is not None:
        raise ValueError(f"illegal base64 data at input byte {wrong}")
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _invalid(why: str) -> statuses.StatusError:
    return statuses.bad_request(f"invalid continue token: {why}")
