"""Check of the object that a controller will create for a user's object.

Used by `object_writer` before it stores the user's object, for kinds whose
`installed_kind_types.InstalledKind` has a `sample`. The check is like a dry run of the creation,
but without authorization: the controller has permissions of its own.
"""

from kilnwork.api import meta
from kilnwork.controlplane.apiserver import (
    admission,
    authn,
    builtin,
    catalog,
    causes,
    lookup_interface,
    statuses,
    write_types,
)

_REFUSALS = (400, 422)
"""Status codes of an object that is invalid for any client and at any time."""


async def check(
    kinds: catalog.Catalog,
    target: write_types.WriteTarget,
    obj: meta.JsonObject,
    *,
    user: authn.User,
    reader: lookup_interface.Lookup,
) -> None:
    """Raise 422 for an admitted object if the server would reject the object created from it.

    The check is skipped if the kind of the created object is not served (yet).
    """
    sample = None if target.served.extension is None else target.served.extension.sample(obj)
    if sample is None:
        return
    body, field = sample
    served = kinds.find_kind(body["apiVersion"], body["kind"])
    if served is None or not served.resource.namespaced or served.terminating:
        return
    try:
        await _admit(served, body, target, user=user, reader=reader)
    except statuses.StatusError as error:
        if error.code not in _REFUSALS:
            return
        why = f"the server refuses the object that it makes: {error.message}"
        cause = causes.invalid(field, body["kind"], why)
        raise statuses.invalid(target.kind, target.name, [cause]) from error


async def _admit(
    served: builtin.ServedResource,
    body: meta.JsonObject,
    target: write_types.WriteTarget,
    *,
    user: authn.User,
    reader: lookup_interface.Lookup,
) -> None:
    decoded = admission.read(served, body, field_validation="Strict")
    # The controller chooses the name later, so any valid name will do.
    metadata = {**decoded.obj["metadata"], "name": "sample", "namespace": target.namespace}
    request = admission.AdmissionRequest(
        operation="create",
        kind=served.resource,
        new={**decoded.obj, "metadata": metadata},
        known=True,
        served=served,
    )
    await admission.admit(request, user=user, reader=reader)
