"""What the API server refuses by itself: a TaskObject whose data would change.

A ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1, Kubernetes 1.30), because the CEL
rules of a CustomResourceDefinition cannot see fields without a schema. The embedded API server has
the rule built in. Not the only line: a Task remembers the digest of its inputs.
"""

from kilnwork.api import kinds, meta
from kilnwork.cli.installing import rights

NAME = f"immutable.{kinds.TASK_OBJECTS.qualified}"
_VERSION = "admissionregistration.k8s.io/v1"


def objects() -> tuple[meta.JsonObject, meta.JsonObject]:
    """The policy, and the binding that puts it into force everywhere."""
    rule = {
        "apiGroups": [kinds.GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": [kinds.TASK_OBJECTS.plural],
        "scope": "*",
    }
    policy = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME, "labels": rights.labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [_unchanged("data")],
        },
    }
    binding = {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME, "labels": rights.labels()},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
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
