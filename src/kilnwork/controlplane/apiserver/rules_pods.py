"""Defaults and validation of Pods.

Used by admission, after `typed_decoding`. Messages are those of
k8s.io/kubernetes/pkg/apis/core/validation. The rules are incomplete on purpose: fields that no node
here reads are stored without validation.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kilnwork.api import api_resources, meta, names, quantities
from kilnwork.controlplane.apiserver import causes, lookup_interface, statuses

_RESTART_POLICIES = ("Always", "OnFailure", "Never")

_POD_DEFAULTS: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_CONTAINER_DEFAULTS: Mapping[str, Any] = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_DEFAULT_MODE = 0o644
_CHANGEABLE = (
    "activeDeadlineSeconds",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
)
_UPDATE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def default(pod: meta.JsonObject) -> None:
    """Fill in the defaults of Kubernetes that affect how a Pod runs or how it is shown."""
    spec = pod["spec"] = pod.get("spec") or {}
    for key, value in _POD_DEFAULTS.items():
        _fill(spec, key, value)
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("serviceAccountName"):
        # `serviceAccount` is a deprecated alias, which the conversion of core/v1 keeps equal.
        spec["serviceAccount"] = spec["serviceAccountName"]
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(group) or ():
            default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def initial_status(pod: meta.JsonObject) -> None:
    """Set the status of a new Pod to Pending, whatever the client sent."""
    pod["status"] = {"phase": "Pending", "qosClass": _quality(pod["spec"])}


def use_service_account(pod: meta.JsonObject, reader: lookup_interface.Lookup) -> None:
    """Set the Pod's service account, and whether its token is mounted.

    Raises 403 when the account does not exist (yet).
    """
    spec, metadata = pod["spec"], pod["metadata"]
    name = spec.get("serviceAccountName") or "default"
    namespace = metadata.get("namespace", "")
    account = reader.get(api_resources.SERVICE_ACCOUNTS, namespace, name)
    if account is None:
        raise statuses.refused(
            api_resources.PODS,
            metadata.get("name", ""),
            f"error looking up service account {namespace}/{name}: "
            f'serviceaccount "{name}" not found',
        )
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if spec.get("automountServiceAccountToken") is None:
        # The node reads only the Pod, so the setting of the account is copied into it.
        automount = account.get("automountServiceAccountToken")
        if automount is not None:
            spec["automountServiceAccountToken"] = automount


def prefer(pod: meta.JsonObject, *, old: meta.JsonObject | None = None) -> None:
    """Fill in the priority and the default tolerations; a changed Pod keeps its priority."""
    spec, before = pod["spec"], (old or {}).get("spec") or _NO_PRIORITY
    for field in _NO_PRIORITY:
        if spec.get(field) is None and field in before:
            spec[field] = before[field]
    tolerations = spec.get("tolerations") or []
    for key in _BAD_NODES:
        if not any(_tolerates(one, key) for one in tolerations):
            tolerations = [*tolerations, {**_FOR_A_WHILE, "key": key}]
    spec["tolerations"] = tolerations


_NO_PRIORITY: Mapping[str, Any] = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
_BAD_NODES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FOR_A_WHILE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _tolerates(toleration: meta.JsonObject, key: str) -> bool:
    """Return whether a toleration covers the taint `key` with effect NoExecute.

    Follows plugin/pkg/admission/defaulttolerationseconds of k8s.io/kubernetes.
    """
    keys, effects = (key, None, ""), ("NoExecute", None, "")
    return toleration.get("key") in keys and toleration.get("effect") in effects


def validate(pod: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the problems of a new Pod."""
    spec = pod["spec"]
    volumes: set[str] = set()
    yield from _volumes(spec, volumes)
    if not spec.get("containers"):
        yield causes.required("spec.containers")
    yield from _containers(spec, volumes)
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        yield causes.unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    grace, deadline = spec["terminationGracePeriodSeconds"], spec.get("activeDeadlineSeconds")
    if grace < 0:
        yield causes.invalid(
            "spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"
        )
    if deadline is not None and deadline < 1:
        text = "must be between 1 and 2147483647, inclusive"
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, text)
    for field in ("serviceAccountName", "nodeName"):
        name = spec.get(field)
        if name and (problem := names.subdomain_problem(name)):
            yield causes.invalid(f"spec.{field}", name, problem)


def validate_update(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the forbidden changes of a Pod in an update of its main path (not of a subresource)."""
    for group in ("containers", "initContainers"):
        if len(old["spec"].get(group) or ()) != len(new["spec"].get(group) or ()):
            text = "pod updates may not add or remove containers"
            yield causes.forbidden(f"spec.{group}", text)
            # Nothing else is compared then, as in ValidatePodUpdate.
            return
    # A gated Pod is not scheduled yet, so its placement may be narrowed (KEP-3838).
    gated = bool(old["spec"].get("schedulingGates"))
    if _fixed(old["spec"], gated=gated) != _fixed(new["spec"], gated=gated):
        yield causes.forbidden("spec", _UPDATE_TEXT)
    if gated:
        yield from _placement_changes(old["spec"], new["spec"])
    gates = {gate.get("name") for gate in old["spec"].get("schedulingGates") or ()}
    for position, gate in enumerate(new["spec"].get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield causes.forbidden(f"spec.schedulingGates[{position}].name", text)
    for group in ("containers", "initContainers"):
        for position, container in enumerate(new["spec"].get(group) or ()):
            if not container.get("image"):
                yield causes.required(f"spec.{group}[{position}].image")


def _fill(target: meta.JsonObject, key: str, value: Any) -> None:
    if target.get(key) in (None, ""):
        target[key] = value


def default_container(container: meta.JsonObject) -> None:
    """Fill in the defaults of a container."""
    for key, value in _CONTAINER_DEFAULTS.items():
        _fill(container, key, value)
    if container.get("resources") is None:
        container["resources"] = {}
    image = container.get("image") or ""
    # A colon before the last slash belongs to the port of the registry.
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    floating = "@" not in image and tag in ("", "latest")
    _fill(container, "imagePullPolicy", "Always" if floating else "IfNotPresent")
    for port in container.get("ports") or ():
        _fill(port, "protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if isinstance(reference, dict):
            _fill(reference, "apiVersion", "v1")


def _default_volume(volume: meta.JsonObject) -> None:
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        source = volume.get(kind)
        if isinstance(source, dict):
            _fill(source, "defaultMode", _DEFAULT_MODE)
    host_path = volume.get("hostPath")
    if isinstance(host_path, dict):
        host_path.setdefault("type", "")


def _quality(spec: meta.JsonObject) -> str:
    """Return the QoS class of a Pod (core helper/qos).

    A Pod is Guaranteed if all limits are set and equal the requests.
    """
    containers = [c.get("resources") or {} for c in spec.get("containers") or ()]
    if not any(r.get("requests") or r.get("limits") for r in containers):
        return "BestEffort"
    guaranteed = all(
        set(r.get("limits") or ()) >= {"cpu", "memory"}
        and (r.get("requests") or r["limits"]) == r["limits"]
        for r in containers
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _volumes(spec: meta.JsonObject, found: set[str]) -> Iterator[causes.Cause]:
    for position, volume in enumerate(spec.get("volumes") or ()):
        field, name = f"spec.volumes[{position}]", volume.get("name")
        sources = [k for k, v in volume.items() if k != "name" and v is not None]
        if not sources:
            yield causes.required(field, "must specify a volume type")
        for extra in sources[1:]:
            yield causes.forbidden(f"{field}.{extra}", "may not specify more than 1 volume type")
        if not name:
            yield causes.required(f"{field}.name")
        elif problem := names.label_problem(name):
            yield causes.invalid(f"{field}.name", name, problem)
        elif name in found:
            yield causes.duplicate(f"{field}.name", name)
        found.add(name or "")


def _containers(spec: meta.JsonObject, volumes: set[str]) -> Iterator[causes.Cause]:
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(group) or ()):
            field, name = f"spec.{group}[{position}]", container.get("name")
            yield from container_causes(container, field, volumes)
            if name and name in seen:
                yield causes.duplicate(f"{field}.name", name)
            seen.add(name or "")


def container_causes(
    container: meta.JsonObject, field: str, volumes: Collection[str]
) -> Iterator[causes.Cause]:
    """Yield the problems of one container of any type, without comparing it with others."""
    name = container.get("name")
    if not name:
        yield causes.required(f"{field}.name")
    elif problem := names.label_problem(name):
        yield causes.invalid(f"{field}.name", name, problem)
    if not container.get("image"):
        yield causes.required(f"{field}.image")
    yield from _resources(container["resources"], f"{field}.resources")
    yield from _env(container, f"{field}.env")
    yield from _mounts(container, f"{field}.volumeMounts", volumes)


def _resources(given: meta.JsonObject, field: str) -> Iterator[causes.Cause]:
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    for group, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if quantities.parse(str(amount)) < 0:
                text = "must be greater than or equal to 0"
                yield causes.invalid(f"{field}.{group}[{name}]", str(amount), text)
    for name in requests.keys() & limits.keys():
        amount, limit = str(requests[name]).strip(), str(limits[name]).strip()
        if quantities.parse(amount) > quantities.parse(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            yield causes.invalid(f"{field}.requests", amount, text)


def _env(container: meta.JsonObject, field: str) -> Iterator[causes.Cause]:
    sources = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
    for position, variable in enumerate(container.get("env") or ()):
        here, name = f"{field}[{position}]", variable.get("name")
        if not name:
            yield causes.required(f"{here}.name")
        elif problem := names.env_name_problem(name):
            yield causes.invalid(f"{here}.name", name, problem)
        origin = variable.get("valueFrom")
        if origin is None:
            continue
        given = [source for source in sources if origin.get(source) is not None]
        if not given:
            text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or "
            yield causes.invalid(f"{here}.valueFrom", "", f"{text}`secretKeyRef`")
        elif variable.get("value"):
            text = "may not be specified when `value` is not empty"
            yield causes.invalid(f"{here}.valueFrom", "", text)
        elif given == ["fieldRef"] and not origin["fieldRef"].get("fieldPath"):
            yield causes.required(f"{here}.valueFrom.fieldRef.fieldPath")
        elif len(given) > 1:
            text = "may not have more than one field specified at a time"
            yield causes.invalid(f"{here}.valueFrom", "", text)


def _mounts(
    container: meta.JsonObject, field: str, volumes: Collection[str]
) -> Iterator[causes.Cause]:
    paths: set[str] = set()
    for position, mount in enumerate(container.get("volumeMounts") or ()):
        here, name, path = f"{field}[{position}]", mount.get("name"), mount.get("mountPath")
        if not name:
            yield causes.required(f"{here}.name")
        if name not in volumes:
            yield causes.not_found(f"{here}.name", name or "")
        if not path:
            yield causes.required(f"{here}.mountPath")
        elif path in paths:
            yield causes.invalid(f"{here}.mountPath", path, "must be unique")
        elif ".." in path.split("/"):
            yield causes.invalid(f"{here}.mountPath", path, "must not contain '..'")
        paths.add(path or "")
        sub_path = mount.get("subPath") or ""
        if sub_path.startswith("/"):
            yield causes.invalid(f"{here}.subPath", sub_path, "must be a relative path")
        elif ".." in sub_path.split("/"):
            yield causes.invalid(f"{here}.subPath", sub_path, "must not contain '..'")


def _placement_changes(old: meta.JsonObject, new: meta.JsonObject) -> Iterator[causes.Cause]:
    """Yield the forbidden changes in the placement of a gated Pod.

    The placement may only be narrowed (KEP-3838).
    """
    before, after = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    if not before.items() <= after.items():
        text = "only additions are allowed (no mutations or deletions)"
        yield causes.invalid("spec.nodeSelector", after, text)
    without = [
        {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}
        for spec in (old, new)
    ]
    if without[0] != without[1]:
        yield causes.forbidden("spec", _UPDATE_TEXT)
    yield from _affinity_changes(_terms(old), _terms(new))


def _terms(spec: meta.JsonObject) -> list[meta.JsonObject]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return required.get("nodeSelectorTerms") or []


def _affinity_changes(
    old: list[meta.JsonObject], new: list[meta.JsonObject]
) -> Iterator[causes.Cause]:
    field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    # A Pod without node selector terms may get any terms.
    if not old:
        return
    if len(old) != len(new):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield causes.invalid(f"{field}.nodeSelectorTerms", new, text)
        return
    for position, (before, after) in enumerate(zip(old, new, strict=True)):
        for part in ("matchExpressions", "matchFields"):
            wanted = after.get(part) or []
            if any(one not in wanted for one in before.get(part) or ()):
                text = "only additions are allowed (no mutations or deletions)"
                yield causes.invalid(f"{field}.nodeSelectorTerms[{position}]", after, text)


_PLACEMENT = ("affinity", "nodeSelector")
"""Fields of a gated Pod that `_placement_changes` validates."""


def _fixed(spec: meta.JsonObject, *, gated: bool) -> meta.JsonObject:
    """Return the spec without the fields that may change."""
    left_out = (*_CHANGEABLE, *_PLACEMENT) if gated else _CHANGEABLE
    # An absent field and an empty one are the same in Go.
    fixed = {k: v for k, v in spec.items() if k not in left_out and v not in (None, [], "")}
    for group in ("containers", "initContainers"):
        if fixed.get(group):
            fixed[group] = [
                {k: v for k, v in container.items() if k not in ("image", "imagePullPolicy")}
                for container in fixed[group]
            ]
    return fixed
