"""Subresources of an object that clients only POST to: binding, eviction and token.

Used by `resource_handler`, and by the binder. `object_writer` writes `status`, and `podlogs` serves
`log`.
"""

from typing import Any

import msgspec

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import (
    deletion,
    metadata,
    object_writer,
    requests,
    statuses,
    tokenrequests,
    tokens,
    write_types,
)

_SUCCESS: dict[str, Any] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


BINDING = api_resources.Resource(
    group="", version="v1", kind="Binding", plural="bindings", singular="binding"
)
EVICTION = api_resources.Resource(
    group="policy", version="v1", kind="Eviction", plural="evictions", singular="eviction"
)
_BINDINGS = msgspec.structs.replace(api_resources.PODS, plural="pods/binding")


async def bind(
    writer: object_writer.ObjectWriter,
    target: write_types.WriteTarget,
    body: meta.JsonObject,
    options: write_types.WriteContext,
) -> bytes:
    """Bind a Pod to a node (core/v1 Binding).

    Raises 409 when the Pod is bound already, is being deleted, or has another uid than the binding;
    400 or 422 for an invalid binding.
    """
    _check_name(body, target, "Binding")
    binding_target = body.get("target")
    node = binding_target.get("name") if isinstance(binding_target, dict) else None
    if not node or not isinstance(node, str):
        cause = statuses.Cause("target.name", "FieldValueRequired", "Required value")
        raise statuses.invalid(target.kind, target.name, [cause])
    uid = metadata.metadata_of(body).get("uid")
    now = writer.now()

    def bound(pod: meta.JsonObject) -> meta.JsonObject:
        spec, pod_metadata = pod["spec"], pod["metadata"]
        if pod_metadata.get("deletionTimestamp"):
            why = f"pod {target.name} is being deleted, cannot be assigned to a host"
            raise statuses.conflict(_BINDINGS, target.name, why)
        if spec.get("nodeName"):
            why = f'pod {target.name} is already assigned to node "{spec["nodeName"]}"'
            raise statuses.conflict(_BINDINGS, target.name, why)
        # The binding was decided for an earlier Pod of this name.
        if uid and uid != pod_metadata["uid"]:
            raise statuses.conflict(target.kind, target.name, "the Pod is another by that name")
        status = pod.get("status") or {}
        # The binder may have reported earlier that the Pod fits on no node.
        conditions = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        status = {**status, "conditions": [*conditions, scheduled]}
        return {**pod, "spec": {**spec, "nodeName": node}, "status": status}

    await writer.change_internally(target, bound, options, subresource="binding")
    return msgspec.json.encode(_SUCCESS)


def _check_name(body: meta.JsonObject, target: write_types.WriteTarget, kind: str) -> None:
    if metadata.metadata_of(body).get("name") != target.name:
        raise statuses.bad_request(f"name in URL does not match name in {kind} object")


async def evict(
    deleter: deletion.Deleter,
    target: write_types.WriteTarget,
    body: meta.JsonObject,
    request: requests.ApiRequest,
    *,
    options: write_types.WriteContext,
) -> bytes:
    """Delete a Pod gracefully (policy/v1 Eviction). Disruption budgets are not supported."""
    _check_name(body, target, "Eviction")
    delete_options = body.get("deleteOptions")
    document = delete_options if isinstance(delete_options, dict) else {}
    await deleter.delete(target, deletion.parse_options(document, request.query, options))
    return msgspec.json.encode(_SUCCESS)


async def token(
    writer: object_writer.ObjectWriter,
    target: write_types.WriteTarget,
    body: meta.JsonObject,
    options: write_types.WriteContext,
    *,
    minter: tokens.TokenIssuer,
) -> bytes:
    """Return a token of a service account (authentication.k8s.io/v1 TokenRequest)."""
    account = writer.lookup.get(api_resources.SERVICE_ACCOUNTS, target.namespace, target.name)
    if account is None:
        raise statuses.not_found(target.kind, target.name)
    response = tokenrequests.issue_token(
        body, account=account, minter=minter, reader=writer.lookup, user=options.user
    )
    return msgspec.json.encode(response)
