"""Lists: selectors, pages, consistent snapshots, and the encoding of list responses.

Used by `resource_handler` (list, deletecollection) and `watches` (selectors). Objects stay encoded
wherever no code has to read them. All pages of a list show the state at its first page: see
`continue_tokens`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilnwork.api import api_resources, meta, selectors
from kilnwork.controlplane import errors, store, store_types
from kilnwork.controlplane.apiserver import (
    builtin,
    continue_tokens,
    options,
    requests,
    response_formats,
    statuses,
)

_FIELD_PATHS = {"source": "source.component"}
"""Field selectors whose name differs from the path in the object."""

_FIELD_DEFAULTS = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}
"""Values of missing fields, where these do not read as the empty string."""


_MAX_DIGITS = 19
"""Digits of the largest sequence number, 2^63 - 1."""


class ObjectSelection(msgspec.Struct, frozen=True):
    """Selection of the objects of a resource that a request asks for."""

    namespace: str | None
    labels: selectors.LabelSelector
    fields: selectors.FieldSelector

    @property
    def everything(self) -> bool:
        """Return whether there are no selectors, so that no object has to be decoded.

        The selection may still be limited to a namespace.
        """
        return not self.labels and not self.fields

    def matches_key(self, key: store_types.Key) -> bool:
        return self.namespace is None or key.namespace == self.namespace

    def matches(self, key: store_types.Key, look: Callable[[], meta.JsonObject]) -> bool:
        """Return whether the selection includes an object.

        `look` decodes the object and is called only if necessary.
        """
        if not self.matches_key(key):
            return False
        if self.everything:
            return True
        # Watches of one object select by name, for which nothing has to be decoded.
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


SelectorDecoder = Callable[[bytes], meta.JsonObject]
"""Decodes those fields of an encoded object that selectors may need."""

_Tree = dict[str, Any]


@functools.lru_cache(maxsize=256)
def selector_decoder(selectable: tuple[str, ...]) -> SelectorDecoder:
    """Return a decoder of only the labels and the selectable fields of an object.

    A watch of the Pods of one node needs little of a large Pod.
    """
    wanted: _Tree = {}
    paths = (_FIELD_PATHS.get(path, path) for path in selectable)
    for path in ("metadata.labels", "metadata.name", "metadata.namespace", *paths):
        *steps, last = path.split(".")
        tree = wanted
        for step in steps:
            tree = tree.setdefault(step, {})
        tree.setdefault(last, {})
    decode = msgspec.json.Decoder(_type_of(wanted)).decode

    def look(raw: bytes) -> meta.JsonObject:
        try:
            found: meta.JsonObject = msgspec.to_builtins(decode(raw))
        except msgspec.ValidationError:  # a text where an object is looked into
            found = msgspec.json.decode(raw)
        return found

    return look


def _type_of(wanted: _Tree) -> Any:
    if not wanted:
        return Any
    # A name in JSON need not be a valid name in Python.
    names = {f"f{number}": name for number, name in enumerate(wanted)}
    fields = [
        (field, _type_of(wanted[name]) | None, msgspec.UNSET)  # a field that is not there
        for field, name in names.items()
    ]
    return msgspec.defstruct("Part", fields, rename=names)


def selection(request: requests.ApiRequest, served: builtin.ServedResource) -> ObjectSelection:
    """Return the selection of a list or watch request. Raises 400 for an invalid selector."""
    try:
        labels = selectors.parse_labels(request.query.text("labelSelector"))
        fields = selectors.parse_fields(request.query.text("fieldSelector"))
    except selectors.SelectorError as error:
        raise statuses.bad_request(str(error)) from error
    known = {"metadata.name", "metadata.namespace", *served.selectable}
    for term in fields.terms:
        if term.path not in known:
            raise statuses.bad_request(_unknown_field(served, term.path))
    namespace = request.namespace if request.namespace and served.resource.namespaced else None
    return ObjectSelection(namespace, labels, fields)


def _unknown_field(served: builtin.ServedResource, path: str) -> str:
    """Return the error text for a field selector with an unknown field.

    The text differs between kinds with and without selectable fields.
    """
    if served.selectable or served.custom:
        return f"field label not supported: {path}"
    known = '"metadata.name", "metadata.namespace"'
    return f'"{path}" is not a known field selector: only {known}'


class ListPage(msgspec.Struct, frozen=True):
    """Page of a list: its objects, the state that they show, and where the next page starts."""

    items: Sequence[store_types.Stored]
    sequence: int
    continue_: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the page (metav1.ListMeta)."""
        found: dict[str, Any] = {"resourceVersion": str(self.sequence)}
        if self.continue_:
            found["continue"] = self.continue_
        if self.remaining is not None:
            found["remainingItemCount"] = self.remaining
        return found


def page(
    held: store.Store,
    served: builtin.ServedResource,
    chosen: ObjectSelection,
    asked: options.ListOptions,
) -> ListPage:
    """Return the page that a list request asks for, ordered by namespace and name."""
    if asked.continue_:
        target = continue_tokens.decode(asked.continue_)
        if asked.version not in ("", "0"):
            raise statuses.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        # The token in a 410 has no sequence number: it continues in the current state.
        sequence, after = target.sequence or held.sequence, target.after
    else:
        sequence, after = _sequence_to_show(held, asked), None
    limit = 0 if _from_cache(asked) else asked.limit
    candidates = _candidates(held, served, chosen, sequence, after)
    found: list[store_types.Stored] = []
    for position, stored in enumerate(candidates):
        if not chosen.matches(stored.key, stored.decode):
            continue
        if limit and len(found) == limit:
            # Unknown with a selector; the API then omits remainingItemCount.
            remaining = len(candidates) - position if chosen.everything else None
            token = continue_tokens.encode(sequence, found[-1].key)
            return ListPage(found, sequence, token, remaining)
        found.append(stored)
    return ListPage(found, sequence)


def _candidates(
    held: store.Store,
    served: builtin.ServedResource,
    chosen: ObjectSelection,
    sequence: int,
    after: tuple[str, str] | None,
) -> list[store_types.Stored]:
    qualified = served.resource.qualified
    if sequence == held.sequence:
        return list(held.select(qualified, chosen.namespace, after=after))
    try:
        if sequence > held.sequence:
            # Only a continue token can lead here: check_reached refuses a resourceVersion before.
            raise errors.TooOld("of another data directory")
        former = held.select_at(qualified, sequence, chosen.namespace)
    except errors.TooOld as error:
        if after is not None:
            raise continue_tokens.expired(after) from error
        message = "The resourceVersion for the provided list is too old."
        raise statuses.expired(message) from error
    if after is None:
        return former
    return [s for s in former if (s.key.namespace, s.key.name) > after]


def _from_cache(asked: options.ListOptions) -> bool:
    """Return whether a list request has `resourceVersion=0`.

    Kubernetes then reads from memory, without a limit.
    """
    return asked.version == "0" and not asked.continue_


def _sequence_to_show(held: store.Store, asked: options.ListOptions) -> int:
    """Return the sequence number of the state that the list shows (KEP-365).

    With a limit and without resourceVersionMatch, a resourceVersion means exactly that state.
    """
    wanted = check_reached(held, asked.version)
    exactly = asked.match == options.EXACT or (asked.limit and not asked.match)
    return wanted if exactly and wanted else held.sequence


def check_reached(held: store.Store, version: str) -> int:
    """Return a resourceVersion as a number. Raises 504 if the store has not reached it."""
    wanted = sequence_number(version)
    if wanted > held.sequence:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise statuses.StatusError(
            504,
            "Timeout",
            f"Timeout: Too large resource version: {wanted}, current: {held.sequence}",
            details={"causes": [cause], "retryAfterSeconds": 1},
        )
    return wanted


def sequence_number(version: str) -> int:
    """Return a resourceVersion as a number, 0 when empty. Raises 400 for anything else."""
    if not version:
        return 0
    if _is_no_number(version):
        raise statuses.bad_request(f"invalid resource version: {_unreadable(version)}")
    return int(version)


def check_readable(version: str) -> None:
    """Raise a 500 without a reason for an invalid resourceVersion in a GET of one object."""
    if version and _is_no_number(version):
        raise statuses.plain_internal(_unreadable(version))


def _is_no_number(version: str) -> bool:
    return not version.isascii() or not version.isdigit() or len(version) > _MAX_DIGITS


def _unreadable(version: str) -> str:
    shown = version[: 2 * _MAX_DIGITS]
    return (
        f'resourceVersion: Invalid value: "{shown}": strconv.ParseUint: parsing "{shown}": '
        "invalid syntax"
    )


def encode(served: builtin.ServedResource, shown: ListPage) -> bytes:
    """Return a page as an encoded list, assembled from the stored bytes of its objects."""
    return _encode(
        served, [served.in_own_version(stored.raw) for stored in shown.items], shown.metadata()
    )


def encode_deleted(
    served: builtin.ServedResource, items: Sequence[bytes], chosen: ListPage
) -> bytes:
    """Return the objects of a page as an encoded list, the response to their deletion."""
    return _encode(served, items, chosen.metadata())


def _encode(
    served: builtin.ServedResource, items: Sequence[bytes], metadata: dict[str, Any]
) -> bytes:
    """Encode a list of encoded items.

    Items of built-in kinds have no apiVersion and kind, those of custom kinds do.
    """
    kind = served.resource
    if served.custom:
        # Custom objects are unstructured in the real server; their lists always have the field.
        metadata.setdefault("continue", "")
    else:
        items = [_untyped(raw, kind) for raw in items]
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def _untyped(raw: bytes, kind: api_resources.Resource) -> bytes:
    head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
    if raw.startswith(head):
        return b"{" + raw[len(head) :]
    decoded = msgspec.json.decode(raw)
    return msgspec.json.encode(
        {k: v for k, v in decoded.items() if k not in ("kind", "apiVersion")}
    )


def partial_list(shown: ListPage) -> meta.JsonObject:
    """Return a page as metav1.PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": shown.metadata(),
        "items": [response_formats.partial(stored.decode()) for stored in shown.items],
    }
