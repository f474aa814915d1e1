"""The downward API: fields of a Pod and resources of a container as text.

Used by `container_plan` (variables) and `volume_sources` (files). Does no I/O. Names, formats and
error messages are those of k8s.io/kubernetes pkg/fieldpath and pkg/api/v1/resource.
"""

import decimal
import json
import math
import re
from collections.abc import Mapping

from kilnwork.api import quantities
from kilnwork.controlplane.node import container_input_types, errors, pod_types

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def field(path: str, pod: pod_types.Pod, facts: container_input_types.NodeFacts) -> str:
    """Return the value of a field of the Pod, such as `metadata.name`.

    Raises `InputsNotReady` for a field that the downward API or this node does not offer.
    """
    match = _SUBSCRIPT.fullmatch(path)
    if match:
        values = getattr(pod.metadata, match.group(1))
        return str(values.get(match.group(2), ""))
    simple = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": facts.node,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": facts.address,
        "status.hostIPs": facts.address,
        "status.podIP": facts.address,
        "status.podIPs": facts.address,
    }
    if path not in simple:
        raise errors.InputsNotReady(f"unsupported fieldPath: {path}")
    return simple[path]


def file_content(path: str, pod: pod_types.Pod, facts: container_input_types.NodeFacts) -> str:
    """Return the content of a file: the value of a field, or all labels or annotations."""
    if path in ("metadata.labels", "metadata.annotations"):
        return _table(getattr(pod.metadata, path.partition(".")[2]))
    return field(path, pod, facts)


def _table(values: Mapping[str, str]) -> str:
    """Return sorted lines of `key="value"` (fieldpath.FormatMap)."""
    lines = (f"{key}={json.dumps(values[key], ensure_ascii=False)}" for key in sorted(values))
    return "\n".join(lines)


def resource(
    reference: pod_types.ResourceReference,
    container: pod_types.Container,
    facts: container_input_types.NodeFacts,
) -> str:
    """Return a limit or request of a container in units of the divisor, rounded up.

    An unset limit is the node's capacity, or 0 if the node does not have the resource; an unset
    request is the limit, else 0. Raises `InputsNotReady` if `reference.resource` does not begin
    with `limits.` or `requests.`.
    """
    group, _, name = reference.resource.partition(".")
    if group not in ("limits", "requests") or not name:
        raise errors.InputsNotReady(f"unsupported container resource: {reference.resource}")
    limits, requests = container.limits, container.requests
    if group == "limits":
        amount = limits.get(name) or facts.capacity.get(name, "0")
    else:
        amount = requests.get(name) or limits.get(name) or "0"
    # A divisor of 0 counts as unset.
    divisor = quantities.amount(reference.divisor) or decimal.Decimal(1)
    return str(math.ceil(quantities.amount(amount) / divisor))
