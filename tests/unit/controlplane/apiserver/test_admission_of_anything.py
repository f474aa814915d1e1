"""For any JSON, admission returns an object or a Status, never with a crash."""

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import admission, authn, statuses, tables
from support import memory_lookup, served_kinds

STORED = memory_lookup.MemoryLookup(
    (api_resources.NAMESPACES, {"metadata": {"name": "default"}}),
    (
        api_resources.SERVICE_ACCOUNTS,
        {"metadata": {"name": "default", "namespace": "default", "uid": "u"}},
    ),
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
KEYS = st.sampled_from(
    [
        "metadata",
        "spec",
        "status",
        "data",
        "stringData",
        "binaryData",
        "type",
        "immutable",
        "rules",
        "roleRef",
        "subjects",
        "kind",
        "apiGroup",
        "apiGroups",
        "resources",
        "verbs",
        "name",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "containers",
        "initContainers",
        "volumes",
        "volumeMounts",
        "mountPath",
        "subPath",
        "image",
        "env",
        "value",
        "valueFrom",
        "fieldRef",
        "secretKeyRef",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "resources",
        "limits",
        "requests",
        "ports",
        "emptyDir",
        "secret",
        "hostPath",
        "command",
        "args",
        "inputs",
        "object",
        "task",
        "path",
        "inputObject",
        "retry",
        "timeouts",
        "run",
        "killTimestamp",
        "outputType",
        "clusterName",
        "replicas",
        "template",
        "conditions",
        "state",
        "attempts",
        "involvedObject",
        "lastTimestamp",
        "series",
        "count",
        "containerStatuses",
        "lastState",
        "terminated",
        "running",
        "addresses",
        "nodeInfo",
    ]
) | st.text(max_size=4)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=6)
KINDS = st.sampled_from([served.resource for served in served_kinds.SERVED])


def admit_or_none(asked: admission.AdmissionRequest, *, user: authn.User = authn.ADMIN) -> Any:
    """The object, or None when it was refused in good order."""
    try:
        return asyncio.run(admission.admit(asked, user=user, reader=STORED)).obj
    except statuses.StatusError as error:
        refused = error
    assert refused.code in (400, 403, 404, 422)
    assert refused.body()
    return None


@settings(deadline=None, max_examples=300)
@given(kind=KINDS, obj=OBJECTS, subresource=st.sampled_from(["", "status"]))
def test_arbitrary_object_is_admitted_or_rejected(
    kind: api_resources.Resource, obj: dict[str, Any], subresource: str
) -> None:
    metadata = {"name": "x", "namespace": "default"} if kind.namespaced else {"name": "x"}
    for new in (obj, {**obj, "metadata": metadata}):
        before = msgspec.json.encode(new)
        made = admit_or_none(
            admission.AdmissionRequest(
                operation="create", kind=kind, served=served_kinds.kind_of(kind), new=new
            )
        )
        assert msgspec.json.encode(new) == before
        if made is None:
            continue
        table = tables.render(served_kinds.kind_of(kind), [made], now=0.0)
        assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
        again = admission.AdmissionRequest(
            operation="update",
            kind=kind,
            served=served_kinds.kind_of(kind),
            new={**made, **obj},
            old=made,
            subresource=subresource,
        )
        admit_or_none(again)


@settings(deadline=None, max_examples=100)
@given(kind=KINDS, obj=OBJECTS)
def test_second_admission_changes_nothing(
    kind: api_resources.Resource, obj: dict[str, Any]
) -> None:
    metadata = {"name": "x", "namespace": "default"} if kind.namespaced else {"name": "x"}
    new = {**obj, "metadata": metadata}
    made = admit_or_none(
        admission.AdmissionRequest(
            operation="create", kind=kind, served=served_kinds.kind_of(kind), new=new
        )
    )
    if made is None:
        return
    same = admission.AdmissionRequest(
        operation="update", kind=kind, served=served_kinds.kind_of(kind), new=made, old=made
    )
    assert admit_or_none(same) == made
