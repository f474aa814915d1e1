"""The object that another one will make, checked when that one is created, and not kept.

Used by `crud` for kinds whose `extensions.Kind` has a sample. As a dry run of its creation, but for
rights: the client that creates it has its own.
"""

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import (
    admission,
    authn,
    builtin,
    catalog,
    causes,
    lookup,
    statuses,
    writes,
)

_REFUSALS = (400, 422)
"""Codes that say that the object is wrong, for any client at any time."""


async def check(
    kinds: catalog.Catalog,
    place: writes.WriteTarget,
    obj: meta.JsonObject,
    *,
    user: authn.User,
    reader: lookup.Lookup,
) -> None:
    """Refuse an object, which is admitted itself, if what it makes would be refused.

    A kind that is not served may come. Raises StatusError (422).
    """
    made = None if place.served.extension is None else place.served.extension.sample(obj)
    if made is None:
        return
    body, field = made
    served = kinds.kind(body["apiVersion"], body["kind"])
    if served is None or not served.resource.namespaced or served.terminating:
        return
    try:
        await _admit(served, body, place, user=user, reader=reader)
    except statuses.StatusError as error:
        if error.code not in _REFUSALS:
            return
        why = f"the server refuses the object that it makes: {error.message}"
        cause = causes.invalid(field, body["kind"], why)
        raise statuses.invalid(place.kind, place.name, [cause]) from error


async def _admit(
    served: builtin.ServedResource,
    body: meta.JsonObject,
    place: writes.WriteTarget,
    *,
    user: authn.User,
    reader: lookup.Lookup,
) -> None:
    read = admission.read(served, body, field_validation="Strict")
    metadata = {**read.obj["metadata"], "name": "sample", "namespace": place.namespace}
    asked = admission.AdmissionRequest(
        operation="create",
        kind=served.resource,
        new={**read.obj, "metadata": metadata},
        known=True,
        served=served,
    )
    await admission.admit(asked, user=user, reader=reader)
