"""All objects of an installation, in an order in which they can be applied."""

from collections.abc import Iterator

from kilnwork.api import admission, crd, kinds, meta, reasons, yaml_loader
from kilnwork.cli.installation import rights, settings, workload

_ENFORCED = "pod-security.kubernetes.io/enforce"
_ADMISSION = "admissionregistration.k8s.io/v1"


def objects(chosen: settings.InstallSettings) -> list[meta.JsonObject]:
    """Return the objects of an installation: the namespace first, the manager last."""
    return list(_objects(chosen))


def _objects(chosen: settings.InstallSettings) -> Iterator[meta.JsonObject]:
    if {"namespace", "rights", "manager"} & set(chosen.parts):
        yield _namespace(chosen)
    if "crds" in chosen.parts:
        for path in sorted(crd.DIRECTORY.glob("*.yaml")):
            yield from yaml_loader.load_all(path.read_text("utf-8"))
        yield from _keep_task_objects()
        yield from _guard_task_claims()
    if "rights" in chosen.parts:
        yield from rights.manager_account(
            chosen.namespace,
            only_in=chosen.only_in,
            more=rights.of_objects(chosen.objects),
            ponds=chosen.ponds,
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


def _namespace(chosen: settings.InstallSettings) -> meta.JsonObject:
    labels = rights.labels()
    if chosen.volume.storage != "hostPath":  # the standards below `privileged` forbid that
        # `restricted` wants Pods to say that they are not root's, and one of `--run-as node` cannot
        labels[_ENFORCED] = "baseline" if chosen.place.user is None else "restricted"
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": chosen.namespace, "labels": labels},
    }


def _keep_task_objects() -> Iterator[meta.JsonObject]:
    """Yield the policy that makes TaskObjects immutable.

    It is a ValidatingAdmissionPolicy (Kubernetes 1.30), because the CEL rules of a
    CustomResourceDefinition cannot see fields without a schema. The embedded API server has the
    rule built in. It is not the only safeguard: a Task records the digest of its inputs.
    """
    rule = _resource_rule("UPDATE", kinds.TASK_OBJECTS.plural)
    return _policy(f"immutable.{kinds.TASK_OBJECTS.qualified}", [rule], [_unchanged("data")])


def _guard_task_claims() -> Iterator[meta.JsonObject]:
    """Yield the policy that restricts TaskClaims (`api.admission`).

    It says who may claim tasks, and when outcomes may be written. RBAC alone is not enough: it can
    restrict the name of a claim, but not its executor. The policy checks the right of the user who
    writes.
    """
    plural = kinds.TASK_CLAIMS.plural
    rules = [_resource_rule("CREATE", plural), _resource_rule("UPDATE", f"{plural}/status")]
    validations = [
        {
            "expression": (
                f"authorizer.group('{kinds.GROUP}').resource('executors').subresource('external')"
                ".namespace(request.namespace).name(object.spec.executor).check('use').allowed()"
            ),
            "messageExpression": (
                "'may not use executors/external \"' + object.spec.executor + '\" of group "
                f"{kinds.GROUP} in namespace \"' + request.namespace + '\"'"
            ),
            "reason": "Forbidden",
        },
        {
            "expression": f"!{_HAD} || {_HAS} && object.status.outcome == oldObject.status.outcome",
            "message": "status.outcome: cannot be changed",
            "reason": "Invalid",
        },
        {
            "expression": f"!{_HAS} || {_HAD} || {_phase('Claimed', 'Killing')}",
            "message": "status.outcome: the claim has no task: see its phase",
            "reason": "Invalid",
        },
        {
            "expression": (
                f"!{_HAS} || {_HAD} || object.status.outcome.state != 'Killed' || "
                f"{_phase('Killing')}"
            ),
            "message": "status.outcome.state: is Killed only where status.phase is Killing",
            "reason": "Invalid",
        },
        {
            "expression": (
                f"!{_HAS} || {_HAD} || object.status.outcome.state != 'Failed' || "
                "!has(object.status.outcome.reason) || "
                f"!(object.status.outcome.reason in {sorted(map(str, reasons.NO_FAILURES))})"
            ),
            "message": f"status.outcome.reason: is one {admission.OUTCOME_REASON}",
            "reason": "Invalid",
        },
    ]
    return _policy(f"holders.{kinds.TASK_CLAIMS.qualified}", rules, validations)


_HAS = "(has(object.status) && has(object.status.outcome))"
_HAD = "(oldObject != null && has(oldObject.status) && has(oldObject.status.outcome))"


def _phase(*phases: str) -> str:
    """Return a CEL expression that is true if the stored claim is in one of the given phases."""
    return f"(has(oldObject.status.phase) && oldObject.status.phase in {list(phases)})"


def _resource_rule(operation: str, resource: str) -> meta.JsonObject:
    return {
        "apiGroups": [kinds.GROUP],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
        "scope": "*",
    }


def _policy(
    name: str, rules: list[meta.JsonObject], validations: list[meta.JsonObject]
) -> Iterator[meta.JsonObject]:
    """Yield an admission policy and the binding that enforces it in all namespaces."""
    yield {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": rights.labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "validations": validations,
        },
    }
    yield {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": rights.labels()},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _unchanged(field: str) -> meta.JsonObject:
    return {
        "expression": (
            f"has(object.{field}) == has(oldObject.{field}) && "
            f"(!has(object.{field}) || object.{field} == oldObject.{field})"
        ),
        "message": f"{field}: field is immutable",
        "reason": "Invalid",
    }
