"""All objects of an installation, in an order in which each may be applied."""

from collections.abc import Iterator

import yaml

from kilnwork.api import crd, kinds, meta
from kilnwork.cli.installing import rights, settings, workload

_ENFORCED = "pod-security.kubernetes.io/enforce"
_POLICY = f"immutable.{kinds.TASK_OBJECTS.qualified}"
_ADMISSION = "admissionregistration.k8s.io/v1"


def objects(chosen: settings.Settings) -> list[meta.JsonObject]:
    """Namespace first, the manager last."""
    return list(_objects(chosen))


def _objects(chosen: settings.Settings) -> Iterator[meta.JsonObject]:
    if {"namespace", "rights", "manager"} & set(chosen.parts):
        yield _namespace(chosen)
    if "crds" in chosen.parts:
        for path in sorted(crd.DIRECTORY.glob("*.yaml")):
            yield yaml.safe_load(path.read_text("utf-8"))
        yield from _policy()
    if "rights" in chosen.parts:
        yield from rights.manager_account(
            chosen.namespace, only_in=chosen.only_in, more=rights.of_objects(chosen.objects)
        )
        yield from rights.users(chosen.namespace)
        if chosen.http_executors:
            yield from rights.executor_account(chosen.namespace, only_in=chosen.only_in)
    if "drivers" in chosen.parts:
        for namespace in chosen.drivers_in:
            yield from rights.drivers(namespace)
    if "manager" in chosen.parts:
        yield workload.service(chosen)
        yield workload.stateful_set(chosen)
        if chosen.http_executors:
            yield workload.http_executors(chosen)


def _namespace(chosen: settings.Settings) -> meta.JsonObject:
    labels = rights.labels()
    if chosen.volume.storage != "hostPath":  # the standards below `privileged` forbid that
        # `restricted` wants Pods to say that they are not root's, and one of `--run-as node` cannot
        labels[_ENFORCED] = "baseline" if chosen.place.user is None else "restricted"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": chosen.namespace, "labels": labels},
    }


def _policy() -> tuple[meta.JsonObject, meta.JsonObject]:
    """What keeps TaskObjects as they are, and the binding that puts it into force everywhere.

    A ValidatingAdmissionPolicy (Kubernetes 1.30), because the CEL rules of a
    CustomResourceDefinition cannot see fields without a schema. The embedded API server has the
    rule built in. Not the only line: a Task remembers the digest of its inputs.
    """
    rule = {
        "apiGroups": [kinds.GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": [kinds.TASK_OBJECTS.plural],
        "scope": "*",
    }
    policy = {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": _POLICY, "labels": rights.labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [_unchanged("data")],
        },
    }
    binding = {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": _POLICY, "labels": rights.labels()},
        "spec": {"policyName": _POLICY, "validationActions": ["Deny"]},
    }
    return policy, binding


def _unchanged(field: str) -> meta.JsonObject:
    return {
        "expression": (
            f"has(object.{field}) == has(oldObject.{field}) && "
            f"(!has(object.{field}) || object.{field} == oldObject.{field})"
        ),
        "message": f"{field}: field is immutable",
        "reason": "Invalid",
    }
