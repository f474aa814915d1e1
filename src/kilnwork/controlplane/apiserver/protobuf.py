"""Bodies in Kubernetes' protobuf form, read into the JSON form; answers are always JSON.

Used by `bodies`. Typed Go clients, and kubectl for `create configmap`, `create token` or
`auth can-i`, send protobuf without asking first, but take JSON back. Only small kinds that people
create by hand are known; for others the refusal says to send JSON. The tables are field numbers
of k8s.io/api/*/generated.proto; the envelope is runtime.Unknown behind four magic bytes.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kilnwork.api import meta
from kilnwork.kit import clock, errors

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(errors.KilnError):
    """The body is not protobuf, or of a kind that is only taken as JSON."""


class _Field(NamedTuple):
    """One field: JSON name, type (a letter or a message name), whether it repeats.

    Types: `s` text, `i` number, `b` truth, `t` time, `u` time with microseconds, `ss` map of texts,
    `sy` map of bytes, anything else a message of `_MESSAGES`.
    """

    name: str
    type: str
    repeated: bool = False


def _message(**fields: str) -> dict[int, _Field]:
    """`name="3 s"` or `name="3 *Message"`."""
    found = {}
    for name, text in fields.items():
        number, _, type_ = text.partition(" ")
        found[int(number)] = _Field(name, type_.lstrip("*"), type_.startswith("*"))
    return found


_MESSAGES: Mapping[str, dict[int, _Field]] = {
    "TypeMeta": _message(apiVersion="1 s", kind="2 s"),
    "ObjectMeta": _message(
        name="1 s",
        generateName="2 s",
        namespace="3 s",
        uid="5 s",
        resourceVersion="6 s",
        generation="7 i",
        creationTimestamp="8 t",
        deletionTimestamp="9 t",
        deletionGracePeriodSeconds="10 i",
        labels="11 ss",
        annotations="12 ss",
        ownerReferences="13 *OwnerReference",
        finalizers="14 *s",
    ),
    "OwnerReference": _message(
        kind="1 s",
        name="3 s",
        uid="4 s",
        apiVersion="5 s",
        controller="6 b",
        blockOwnerDeletion="7 b",
    ),
    "ObjectReference": _message(
        kind="1 s",
        namespace="2 s",
        name="3 s",
        uid="4 s",
        apiVersion="5 s",
        resourceVersion="6 s",
        fieldPath="7 s",
    ),
    "LocalObjectReference": _message(name="1 s"),
    "v1/ConfigMap": _message(
        metadata="1 ObjectMeta", data="2 ss", binaryData="3 sy", immutable="4 b"
    ),
    "v1/Secret": _message(
        metadata="1 ObjectMeta", data="2 sy", type="3 s", stringData="4 ss", immutable="5 b"
    ),
    "v1/ServiceAccount": _message(
        metadata="1 ObjectMeta",
        secrets="2 *ObjectReference",
        imagePullSecrets="3 *LocalObjectReference",
        automountServiceAccountToken="4 b",
    ),
    "v1/Namespace": _message(metadata="1 ObjectMeta", spec="2 NamespaceSpec"),
    "NamespaceSpec": _message(finalizers="1 *s"),
    "v1/Binding": _message(metadata="1 ObjectMeta", target="2 ObjectReference"),
    "policy/v1/Eviction": _message(metadata="1 ObjectMeta", deleteOptions="2 v1/DeleteOptions"),
    "v1/DeleteOptions": _message(
        gracePeriodSeconds="1 i",
        preconditions="2 Preconditions",
        orphanDependents="3 b",
        propagationPolicy="4 s",
        dryRun="5 *s",
    ),
    "Preconditions": _message(uid="1 s", resourceVersion="2 s"),
    "coordination.k8s.io/v1/Lease": _message(metadata="1 ObjectMeta", spec="2 LeaseSpec"),
    "LeaseSpec": _message(
        holderIdentity="1 s",
        leaseDurationSeconds="2 i",
        acquireTime="3 u",
        renewTime="4 u",
        leaseTransitions="5 i",
    ),
    "rbac.authorization.k8s.io/v1/Role": _message(metadata="1 ObjectMeta", rules="2 *PolicyRule"),
    "PolicyRule": _message(
        verbs="1 *s",
        apiGroups="2 *s",
        resources="3 *s",
        resourceNames="4 *s",
        nonResourceURLs="5 *s",
    ),
    "rbac.authorization.k8s.io/v1/RoleBinding": _message(
        metadata="1 ObjectMeta", subjects="2 *Subject", roleRef="3 RoleRef"
    ),
    "rbac.authorization.k8s.io/v1/ClusterRole": _message(
        metadata="1 ObjectMeta", rules="2 *PolicyRule"
    ),
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding": _message(
        metadata="1 ObjectMeta", subjects="2 *Subject", roleRef="3 RoleRef"
    ),
    "Subject": _message(kind="1 s", apiGroup="2 s", name="3 s", namespace="4 s"),
    "RoleRef": _message(apiGroup="1 s", kind="2 s", name="3 s"),
    "authentication.k8s.io/v1/TokenRequest": _message(
        metadata="1 ObjectMeta", spec="2 TokenRequestSpec"
    ),
    "TokenRequestSpec": _message(
        audiences="1 *s", boundObjectRef="3 BoundObjectReference", expirationSeconds="4 i"
    ),
    "BoundObjectReference": _message(kind="1 s", apiVersion="2 s", name="3 s", uid="4 s"),
    "authentication.k8s.io/v1/SelfSubjectReview": _message(metadata="1 ObjectMeta"),
    "authorization.k8s.io/v1/SelfSubjectAccessReview": _message(
        metadata="1 ObjectMeta", spec="2 AccessSpec"
    ),
    "authorization.k8s.io/v1/SubjectAccessReview": _message(
        metadata="1 ObjectMeta", spec="2 AccessSpec"
    ),
    "authorization.k8s.io/v1/LocalSubjectAccessReview": _message(
        metadata="1 ObjectMeta", spec="2 AccessSpec"
    ),
    "authorization.k8s.io/v1/SelfSubjectRulesReview": _message(
        metadata="1 ObjectMeta", spec="2 RulesSpec"
    ),
    "RulesSpec": _message(namespace="1 s"),
    "authentication.k8s.io/v1/TokenReview": _message(
        metadata="1 ObjectMeta", spec="2 TokenReviewSpec"
    ),
    "TokenReviewSpec": _message(token="1 s", audiences="2 *s"),  # noqa: S106 - a field number
    "AccessSpec": _message(
        resourceAttributes="1 ResourceAttributes",
        nonResourceAttributes="2 NonResourceAttributes",
        user="3 s",
        groups="4 *s",
        uid="6 s",
    ),
    "ResourceAttributes": _message(
        namespace="1 s",
        verb="2 s",
        group="3 s",
        version="4 s",
        resource="5 s",
        subresource="6 s",
        name="7 s",
    ),
    "NonResourceAttributes": _message(path="1 s", verb="2 s"),
}

_Value = int | bytes


def decode(body: bytes) -> meta.JsonObject:
    """The object in a body, as JSON would have it; raises ProtobufError."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body does not begin like Kubernetes protobuf")
    try:
        return _decode(body[len(_MAGIC) :])
    except (IndexError, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise ProtobufError(f"the body is no protobuf: {error}") from error


def _decode(envelope: bytes) -> meta.JsonObject:
    type_meta: meta.JsonObject = {}
    raw = b""
    for number, value in _fields(envelope):
        if number == 1 and isinstance(value, bytes):
            type_meta = _object("TypeMeta", value)
        elif number == 2 and isinstance(value, bytes):
            raw = value
    version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    name = "v1/DeleteOptions" if kind == "DeleteOptions" else f"{version}/{kind}"
    if name not in _MESSAGES:
        raise ProtobufError(
            f"{kind or 'an object without kind'} is taken as application/json only: "
            "set the client's content type to JSON"
        )
    return {"apiVersion": version, "kind": kind} | _object(name, raw)


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Field numbers and raw values (protobuf.dev/programming-guides/encoding)."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > len(data):
            raise ValueError("cut short")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("number too long")


def _object(name: str, data: bytes) -> meta.JsonObject:
    """A message; empty texts are absent, as Go's encoder writes them for fields not set."""
    known = _MESSAGES[name]
    found: meta.JsonObject = {}
    for number, raw in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        value = _value(field.type, raw)
        if field.type in ("ss", "sy"):
            found.setdefault(field.name, {}).update(value)
        elif field.repeated:
            found.setdefault(field.name, []).append(value)
        elif value not in (None, ""):
            found[field.name] = value
    return found


def _value(type_: str, raw: _Value) -> Any:
    if isinstance(raw, int):
        signed = raw - (1 << 64) if raw >= 1 << 63 else raw
        return bool(raw) if type_ == "b" else signed
    if type_ == "s":
        return raw.decode()
    if type_ in ("t", "u"):
        return _time(raw, fraction=type_ == "u")
    if type_ in ("ss", "sy"):
        entry = dict(_fields(raw))
        key, value = entry.get(1, b""), entry.get(2, b"")
        if isinstance(key, int) or isinstance(value, int):
            raise ValueError("a map of numbers")
        shown = value.decode() if type_ == "ss" else base64.b64encode(value).decode()
        return {key.decode(): shown}
    return _object(type_, raw)


def _time(raw: bytes, *, fraction: bool) -> str | None:
    parts = dict(_fields(raw))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ValueError("a time without seconds")  # noqa: TRY004  all is one error to the caller
    if not seconds or seconds >= 1 << 63:  # Go's zero time lies before 1970
        return None
    moment = seconds + nanos / 1e9
    return clock.rfc3339_micro(moment) if fraction else clock.rfc3339(moment)
