"""Validation of Secrets, ConfigMaps and Leases: base64, keys, sizes, `stringData`, `immutable`.

Used by admission. Messages are those of k8s.io/kubernetes/pkg/apis/core/validation. No error
contains a value of a Secret.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from kilnwork.api import meta, names
from kilnwork.controlplane.apiserver import causes, statuses

MAX_BYTES = 1024 * 1024
"""Maximum total size of the decoded values, as in Kubernetes."""

_LOCKED = "field is immutable when `immutable` is set"

_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_BASIC_AUTH = ("username", "password")
"""At least one of these keys is required; its value may be empty."""


def default_secret(secret: meta.JsonObject) -> None:
    """Fill in the type of a Secret, and move the write-only `stringData` to `data`."""
    secret.setdefault("type", "Opaque")
    texts = secret.pop("stringData", None)
    if texts:
        data = secret.get("data") or {}
        encoded = {k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}
        # stringData takes precedence over data.
        secret["data"] = {**data, **encoded}


def validate_secret(secret: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a Secret. Raises 400 for data that is not base64."""
    data = secret.get("data") or {}
    size = 0
    for key, value in data.items():
        size += len(_decoded("Secret", value))
        if problem := names.data_key_problem(key):
            yield causes.invalid(f"data[{key}]", key, problem)
    if size > MAX_BYTES:
        yield causes.too_long("data", MAX_BYTES)
    type_ = secret.get("type") or ""
    for key in _NEEDED.get(type_, ()):
        if not data.get(key):
            yield causes.required(f"data[{key}]")
    if type_ == "kubernetes.io/basic-auth" and not data.keys() & set(_BASIC_AUTH):
        yield from (causes.required(f"data[{key}]") for key in _BASIC_AUTH)


def validate_secret_update(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the forbidden changes of a Secret."""
    if old.get("type") != new.get("type"):
        yield causes.invalid("type", new.get("type"), causes.IMMUTABLE)
    yield from _locked(old, new, fields=("data",))


def validate_config_map(config: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a ConfigMap. Raises 400 for binary data that is not base64."""
    data, binary = config.get("data") or {}, config.get("binaryData") or {}
    size = sum(len(value.encode()) for value in data.values())
    for key in data:
        if problem := names.data_key_problem(key):
            yield causes.invalid(f"data[{key}]", key, problem)
        if key in binary:
            yield causes.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key, value in binary.items():
        size += len(_decoded("ConfigMap", value))
        if problem := names.data_key_problem(key):
            yield causes.invalid(f"binaryData[{key}]", key, problem)
    if size > MAX_BYTES:
        yield causes.too_long("", MAX_BYTES)


def validate_config_map_update(
    old: meta.JsonObject, new: meta.JsonObject
) -> Iterator[causes.Cause]:
    """Yield the forbidden changes of a ConfigMap."""
    yield from _locked(old, new, fields=("data", "binaryData"))


def validate_lease(lease: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a Lease (pkg/apis/coordination/validation)."""
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        yield causes.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        text = "must be greater than or equal to 0"
        yield causes.invalid("spec.leaseTransitions", transitions, text)


def _locked(
    old: meta.JsonObject, new: meta.JsonObject, *, fields: tuple[str, ...]
) -> Iterator[causes.Cause]:
    # Only the data is immutable; metadata may still change.
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _LOCKED)
    for field in fields:
        if (old.get(field) or {}) != (new.get(field) or {}):
            yield causes.forbidden(field, _LOCKED)


def _decoded(kind: str, value: Any) -> bytes:
    """Decode a base64 value. Line breaks are allowed, since Go's decoder ignores them."""
    text = (value or "").replace("\n", "").replace("\r", "")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise statuses.bad_request(
            f'{kind} in version "v1" cannot be handled as a {kind}: '
            "illegal base64 data: values of `data` must be base64, plain text goes to "
            + ("`stringData`" if kind == "Secret" else "`data`")
        ) from error
