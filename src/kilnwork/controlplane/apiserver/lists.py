"""Lists: selectors, pages, consistent snapshots, and the forms in which objects are sent.

Used by `app` (list, deletecollection) and by `watching` (selectors and forms). Objects stay encoded
wherever nobody has to look inside. Continue tokens are opaque to clients: base64 of the sequence
number of the first page and the last name, so that all pages show the same moment.
"""

import base64
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kilnwork.api import meta, selectors
from kilnwork.controlplane import errors, objects, store
from kilnwork.controlplane.apiserver import builtin, requests, statuses

_FIELD_PATHS = {"source": "source.component"}
"""Field selectors whose name is not the path in the object."""

_FIELD_DEFAULTS = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}
"""What a missing field reads as, where that is not the empty string."""


_MAX_DIGITS = 19
"""Digits of the largest sequence number, 2^63 - 1."""

_PAGES_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You must start a new list without the continue parameter."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource are meant."""

    namespace: str | None
    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    @property
    def everything(self) -> bool:
        """True when no object has to be looked at."""
        return not self.labels and not self.fields

    def matches_key(self, key: objects.Key) -> bool:
        """Whether the namespace fits."""
        return self.namespace is None or key.namespace == self.namespace

    def matches(self, key: objects.Key, look: Callable[[], meta.JsonObject]) -> bool:
        """Whether an object fits; `look` decodes it, and is called only if need be."""
        if not self.matches_key(key):
            return False
        if self.everything:
            return True
        name = self.fields.exact("metadata.name")
        if name is not None and name != key.name:
            return False
        obj = look()
        if not self.labels.matches(obj["metadata"].get("labels")):
            return False
        return all(_term_matches(term, obj) for term in self.fields.terms)


def _term_matches(term: selectors.FieldTerm, obj: meta.JsonObject) -> bool:
    path = _FIELD_PATHS.get(term.path, term.path)
    found = selectors.text_at(obj, path) or _FIELD_DEFAULTS.get(term.path, "")
    return (found == term.value) != term.negated


def selection(request: requests.Request, served: builtin.Served) -> Selection:
    """The selection of a list or watch request; 400 for a selector that cannot be read."""
    try:
        labels = selectors.parse_labels(request.query.text("labelSelector"))
        fields = selectors.parse_fields(request.query.text("fieldSelector"))
    except selectors.SelectorError as error:
        raise statuses.bad_request(str(error)) from error
    known = {"metadata.name", "metadata.namespace", *served.selectable}
    for term in fields.terms:
        if term.path not in known:
            raise statuses.bad_request(f"field label not supported: {term.path}")
    namespace = request.namespace if request.namespace and served.resource.namespaced else None
    return Selection(namespace, labels, fields)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list: the objects, the moment they show, where the next page starts."""

    items: Sequence[objects.Stored]
    sequence: int
    continue_: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """metav1.ListMeta."""
        found: dict[str, Any] = {"resourceVersion": str(self.sequence)}
        if self.continue_:
            found["continue"] = self.continue_
        if self.remaining is not None:
            found["remainingItemCount"] = self.remaining
        return found


def page(
    held: store.Store, served: builtin.Served, chosen: Selection, query: requests.Query
) -> Page:
    """The objects that a list request asks for, by namespace and name."""
    limit = query.number("limit") or 0
    if limit < 0:
        raise statuses.bad_request("limit must not be negative")
    token = query.text("continue")
    sequence, after = _decode_token(token) if token else (_moment(held, query), None)
    if sequence > held.sequence:
        raise statuses.expired(_PAGES_EXPIRED)
    candidates = _candidates(held, served, chosen, sequence, after)
    found: list[objects.Stored] = []
    for position, stored in enumerate(candidates):
        if not chosen.matches(stored.key, stored.decode):
            continue
        if limit and len(found) == limit:
            remaining = len(candidates) - position if chosen.everything else None
            return Page(found, sequence, _encode_token(sequence, found[-1].key), remaining)
        found.append(stored)
    return Page(found, sequence)


def _candidates(
    held: store.Store,
    served: builtin.Served,
    chosen: Selection,
    sequence: int,
    after: tuple[str, str] | None,
) -> list[objects.Stored]:
    qualified = served.resource.qualified
    if sequence == held.sequence:
        return list(held.select(qualified, chosen.namespace, after=after))
    try:
        former = held.select_at(qualified, sequence, chosen.namespace)
    except errors.TooOld as error:
        raise statuses.expired(_PAGES_EXPIRED if after is not None else str(error)) from error
    if after is None:
        return former
    return [s for s in former if (s.key.namespace, s.key.name) > after]


def _moment(held: store.Store, query: requests.Query) -> int:
    """The sequence number that the list shall show (KEP-365, resourceVersionMatch)."""
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    if match and not version:
        raise statuses.bad_request(
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match not in ("", "Exact", "NotOlderThan"):
        raise statuses.bad_request(
            f'resourceVersionMatch: Unsupported value: "{match}": '
            'supported values: "Exact", "NotOlderThan"'
        )
    wanted = sequence_number(version)
    if wanted > held.sequence:
        raise statuses.StatusError(
            504,
            "Timeout",
            f"Too large resource version: {wanted}, current: {held.sequence}",
            details={
                "causes": [
                    {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                ],
                "retryAfterSeconds": 1,
            },
        )
    return wanted if match == "Exact" and wanted else held.sequence


def sequence_number(version: str) -> int:
    """A resourceVersion as number, 0 when empty; 400 for anything else."""
    if not version:
        return 0
    if not version.isascii() or not version.isdigit() or len(version) > _MAX_DIGITS:
        shown = version[: 2 * _MAX_DIGITS]
        raise statuses.bad_request(f'Invalid value: "{shown}": invalid resource version')
    return int(version)


def _encode_token(sequence: int, key: objects.Key) -> str:
    document = msgspec.json.encode({"rv": sequence, "start": [key.namespace, key.name]})
    return base64.urlsafe_b64encode(document).decode()


class _Token(msgspec.Struct, frozen=True):
    rv: int
    start: tuple[str, str]


def _decode_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error
    return decoded.rv, decoded.start


def encode(served: builtin.Served, shown: Page) -> bytes:
    """The list object, made of the stored bytes."""
    return _encode(served, [stored.raw for stored in shown.items], shown.metadata())


def encode_deleted(served: builtin.Served, items: Sequence[bytes], sequence: int) -> bytes:
    """The list that answers the deletion of a collection."""
    return _encode(served, items, {"resourceVersion": str(sequence)})


def _encode(served: builtin.Served, items: Sequence[bytes], metadata: dict[str, Any]) -> bytes:
    kind = served.resource
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


@functools.lru_cache(maxsize=512)
def accepted(accept: str) -> str:
    """The form to answer in: `object`, `table`, `partial` or `partial-list`; 406 when none fits.

    Clients list what they take in order (`application/json;as=Table;v=v1;g=meta.k8s.io,…`).
    """
    for part in accept.split(","):
        media, *parameters = (p.strip() for p in part.split(";"))
        if media.lower() not in ("application/json", "*/*", "application/*", "text/*"):
            continue
        facts = dict(p.partition("=")[::2] for p in parameters)
        form = facts.get("as", "")
        if form and (facts.get("g") != "meta.k8s.io" or facts.get("v") != "v1"):
            continue
        found = {
            "": "object",
            "Table": "table",
            "PartialObjectMetadata": "partial",
            "PartialObjectMetadataList": "partial-list",
        }.get(form)
        if found is not None:
            return found
    raise statuses.not_acceptable(
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )


def partial(obj: meta.JsonObject) -> meta.JsonObject:
    """metav1.PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def partial_list(shown: Page) -> meta.JsonObject:
    """metav1.PartialObjectMetadataList of a page."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": shown.metadata(),
        "items": [partial(stored.decode()) for stored in shown.items],
    }
