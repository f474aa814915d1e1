"""Whether a Pod fits a node: readiness, taints, labels, required affinity, requests. No I/O.

Used by the scheduler of `kiln up`, its eviction by taints, and gangs. Rules and texts are those of
the scheduler's filters (k8s.io/kubernetes pkg/scheduler/framework/plugins;
k8s.io/component-helpers).
"""

import decimal
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kilnwork.api import meta, quantities, selectors

Amounts = Mapping[str, decimal.Decimal]
"""Resources by name: CPU in cores, memory in bytes, `pods` in Pods."""

NO_EXECUTE = "NoExecute"
_KEEPING_OUT = ("NoSchedule", NO_EXECUTE)
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "absent",
    "Gt": "gt",
    "Lt": "lt",
}


def find_misfit(node: meta.JsonObject, pod: meta.JsonObject, used: Amounts) -> str:
    """Return why the Pod does not fit the node, or "". `used`: the requests of the node's Pods."""
    spec, of_pod = node.get("spec") or {}, pod.get("spec") or {}
    tolerations = of_pod.get("tolerations") or []
    if spec.get("unschedulable") and not is_tolerated(_UNSCHEDULABLE, tolerations):
        return "node(s) were unschedulable"
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return "node(s) were not ready"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _KEEPING_OUT and not is_tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value', '')}}}"
    if not _matches_node(node, of_pod):
        return _MISMATCH
    return _describe_shortage(node, requests(of_pod), used)


# Taints


def is_tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of the tolerations matches this taint."""
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("key")) and same_value


def tolerated_s(node: meta.JsonObject, pod: meta.JsonObject) -> float | None:
    """Return the seconds for which a Pod may stay with the NoExecute taints of its node; None:
    no limit."""
    taints = [t for t in (node.get("spec") or {}).get("taints") or () if t["effect"] == NO_EXECUTE]
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    shortest: float | None = None
    for taint in taints:
        using = [one for one in tolerations if _tolerates(one, taint)]
        if not using:
            return 0.0
        limits = [t["tolerationSeconds"] for t in using if t.get("tolerationSeconds") is not None]
        if limits:
            shortest = min(limits) if shortest is None else min(shortest, *limits)
    return None if shortest is None else max(0.0, float(shortest))


# Labels and affinity


def _matches_node(node: meta.JsonObject, spec: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches(term, node, labels) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Mapping[str, Any], node: meta.JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether all expressions of a term match; a term without expressions matches
    nothing."""
    names = {"metadata.name": node["metadata"]["name"]}
    expressions, in_fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not in_fields:
        return False
    return all(_expression_matches(e, labels) for e in expressions) and all(
        _expression_matches(e, names) for e in in_fields
    )


def _expression_matches(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(expression.get("operator") or "")
    if operator is None:
        return False
    wanted = tuple(expression.get("values") or ())
    if operator in ("gt", "lt") and not wanted:
        return False
    return selectors.Requirement(expression.get("key") or "", operator, wanted).matches(values)


# Requests


def requests(spec: Mapping[str, Any]) -> dict[str, decimal.Decimal]:
    """Return the requests of a Pod: the sum of its containers, or those of an init container if
    higher.

    The rule is that of k8s.io/component-helpers/resource, PodRequests.
    """
    beside: dict[str, decimal.Decimal] = {}
    most: dict[str, decimal.Decimal] = {}
    for container in spec.get("initContainers") or ():
        asked = _of_container(container)
        if container.get("restartPolicy") == "Always":
            beside = _sum(beside, asked)
            asked = {}
        most = _max(most, _sum(beside, asked))
    together = beside
    for container in spec.get("containers") or ():
        together = _sum(together, _of_container(container))
    overhead = {k: quantities.amount(str(v)) for k, v in (spec.get("overhead") or {}).items()}
    return _sum(_max(together, most), overhead)


def _of_container(container: Mapping[str, Any]) -> dict[str, decimal.Decimal]:
    """Return the requests of a container; for a resource without a request, its limit."""
    given = container.get("resources") or {}
    both = {**(given.get("limits") or {}), **(given.get("requests") or {})}
    return {name: quantities.amount(str(amount)) for name, amount in both.items()}


def _sum(one: Amounts, other: Amounts) -> dict[str, decimal.Decimal]:
    zero = decimal.Decimal(0)
    return {name: one.get(name, zero) + other.get(name, zero) for name in {**one, **other}}


def _max(one: Amounts, other: Amounts) -> dict[str, decimal.Decimal]:
    zero = decimal.Decimal(0)
    return {name: max(one.get(name, zero), other.get(name, zero)) for name in {**one, **other}}


def total(amounts: Iterable[Amounts]) -> dict[str, decimal.Decimal]:
    found: dict[str, decimal.Decimal] = {}
    for one in amounts:
        found = _sum(found, one)
    return found


def _describe_shortage(node: meta.JsonObject, asked: Amounts, used: Amounts) -> str:
    """Return which resources are insufficient. A Node without allocatable resources has no
    limits."""
    offered = (node.get("status") or {}).get("allocatable")
    return "" if offered is None else ", ".join(_shortages(asked, used, offered))


def _shortages(asked: Amounts, used: Amounts, offered: Mapping[str, Any]) -> Iterator[str]:
    zero = decimal.Decimal(0)
    if used.get("pods", zero) + 1 > quantities.amount(str(offered.get("pods", "0"))):
        yield "Too many pods"
    for name, amount in asked.items():
        if amount and amount + used.get(name, zero) > quantities.amount(
            str(offered.get(name, "0"))
        ):
            yield f"Insufficient {name}"
