"""Pod, volume and Service of the manager for various settings."""

from typing import Any

import pytest

from kilnwork.api import manager_access
from kilnwork.cli.installation import settings, workload


def chosen(**fields: Any) -> settings.InstallSettings:
    return settings.InstallSettings(**fields)


def pod(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = workload.stateful_set(chosen(**fields))["spec"]["template"]["spec"]
    return found


def arguments(**fields: Any) -> list[str]:
    found: list[str] = pod(**fields)["containers"][0]["args"]
    return found


@pytest.mark.parametrize(
    ("storage", "has_claim", "volumes"),
    [("pvc", True, ["tmp"]), ("emptyDir", False, ["tmp", "data"]),
     ("hostPath", False, ["tmp", "data"])],
)  # fmt: skip
def test_each_storage_has_its_volume(
    storage: settings.Storage,
    has_claim: bool,  # noqa: FBT001
    volumes: list[str],
) -> None:
    volume = settings.Volume(storage=storage, host_path="/srv")
    spec = workload.stateful_set(chosen(volume=volume))["spec"]
    assert ("volumeClaimTemplates" in spec) is has_claim
    found = [one["name"] for one in spec["template"]["spec"]["volumes"]]
    assert found == volumes
    assert ("--adopt" in arguments(volume=volume)) is (storage == "emptyDir")


@pytest.mark.parametrize("name", [None, "", "fast"])
def test_storage_class_is_set_only_if_chosen(name: str | None) -> None:
    volume = settings.Volume(class_name=name, size="5Gi")
    (claim,) = workload.stateful_set(chosen(volume=volume))["spec"]["volumeClaimTemplates"]
    assert claim["spec"].get("storageClassName") == name
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"only_in": ("a", "b")}, ["--only-in=a", "--only-in=b"]),
        ({"objects": settings.AllowedObjects(kinds=("*",))}, ["--allow-kind=*"]),
        ({"advertise": "h:1"}, ["--advertise=h:1"]),
        ({"image": "i:1"}, ["--worker-image=i:1"]),
        ({"image": "i:1", "worker_image": "w:1"}, ["--worker-image=w:1"]),
        ({"manager_arguments": ("--ponds",)}, ["--ponds"]),
        ({"log_level": "debug"}, ["--verbose", "--verbose", "--log-json"]),
        ({"log_level": "warning"}, ["--log-json"]),
    ],
)
def test_choices_become_arguments_of_the_manager(fields: dict[str, Any], given: list[str]) -> None:
    found = arguments(**fields)
    assert [one for one in found if one in given] == given
    assert found.count("--verbose") == given.count("--verbose") or "log_level" not in fields


def test_text_logs_omit_the_json_option() -> None:
    assert "--log-json" not in arguments(log_json=False)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (settings.Toleration(key="a"), {"key": "a", "operator": "Exists"}),
        (
            settings.Toleration(key="a", value="b", effect="NoSchedule"),
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        ),
    ],
)
def test_toleration_without_a_value_tolerates_any(
    toleration: settings.Toleration, expected: dict[str, str]
) -> None:
    assert pod(place=settings.Placement(tolerations=(toleration,)))["tolerations"] == [expected]


def test_pod_is_restricted_and_sets_no_user_if_the_node_decides() -> None:
    user = pod()["securityContext"]
    assert (user["runAsNonRoot"], user["runAsUser"]) == (True, settings.USER)
    assert list(pod(place=settings.Placement(user=None))["securityContext"]) == ["seccompProfile"]
    context = pod()["containers"][0]["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_service_leads_to_the_port_of_the_manager() -> None:
    spec = workload.service(chosen())["spec"]
    labels = workload.stateful_set(chosen())["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert [port["port"] for port in spec["ports"]] == [manager_access.PORT]


def test_executors_have_the_chosen_number_and_the_managers_namespace() -> None:
    found = workload.http_executors(chosen(http_executors=3, namespace="k"))
    assert (found["spec"]["replicas"], found["metadata"]["namespace"]) == (3, "k")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert {"name": manager_access.NAMESPACE_VARIABLE, "value": "k"} in container["env"]
