"""Continue tokens of lists: where the next page begins, and which resourceVersion it shows.

Used by `lists`. Opaque to clients, but in the format of kube-apiserver, so that a corrupt
token is refused with the same message (k8s.io/apiserver/pkg/storage/continue.go).
"""

import base64
import string

import msgspec

from kilnwork.controlplane import store_types
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
    """Position in a list at which a page begins: after the object `after` (namespace, name).

    `sequence` is the state of the store that the list shows; None means the current one.
    """

    sequence: int | None
    after: tuple[str, str]


class _Token(msgspec.Struct, frozen=True):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode(sequence: int, last: store_types.Key) -> str:
    """Return the continue token of the page that begins after the object `last`."""
    return _encode(sequence, (last.namespace, last.name))


def decode(token: str) -> ListPosition:
    """Return the position that a token stands for. Raises 400 for an invalid token."""
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
    """Return a 410 for an expired continue token, with a new token.

    The new token continues at the same position in the current state.
    """
    fresh = {"continue": _encode(_LATEST, after)}
    return statuses.StatusError(410, "Expired", _INCONSISTENT, metadata=fresh)


def _encode(sequence: int, after: tuple[str, str]) -> str:
    # The first possible key after the object, as in the tokens of the real server.
    token = _Token(_VERSION, sequence, f"{after[0]}/{after[1]}\0")
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _bytes(token: str) -> bytes:
    """Decode base64 without padding. Raises ValueError with the message of Go's decoder."""
    wrong = next((i for i, letter in enumerate(token) if letter not in _ALPHABET), None)
    # No number of bytes has 4n + 1 characters in base64.
    if wrong is None and len(token) % 4 == 1:
        wrong = len(token) - 1
    if wrong is not None:
        raise ValueError(f"illegal base64 data at input byte {wrong}")
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _invalid(why: str) -> statuses.StatusError:
    return statuses.bad_request(f"invalid continue token: {why}")
