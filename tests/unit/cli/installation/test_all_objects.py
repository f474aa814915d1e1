"""Objects of each part of an installation, and their order."""

import pytest

from kilnwork.cli.installation import all_objects, settings


def kinds(*parts: settings.Part, executors: int = 0) -> list[str]:
    chosen = settings.InstallSettings(
        parts=parts, http_executors=executors, drivers_in=("a",), objects=settings.AllowedObjects()
    )
    return [one["kind"] for one in all_objects.objects(chosen)]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("namespace", {"Namespace"}),
        ("manager", {"Namespace", "Service", "StatefulSet"}),
        ("drivers", {"ServiceAccount", "RoleBinding"}),
    ],
)
def test_part_has_its_kinds(part: settings.Part, expected: set[str]) -> None:
    assert set(kinds(part)) == expected


def test_definitions_need_no_namespace() -> None:
    found = kinds("crds")
    assert "CustomResourceDefinition" in found
    assert "Namespace" not in found


@pytest.mark.parametrize("part", ["rights", "manager"])
def test_executors_are_added_only_if_chosen(part: settings.Part) -> None:
    assert len(kinds(part, executors=1)) > len(kinds(part))
    assert ("Deployment" in kinds("manager", executors=1)) is True
    assert "Deployment" not in kinds("manager")


def test_namespace_is_first_and_the_manager_last() -> None:
    found = kinds(*settings.PARTS)
    assert (found[0], found[-1]) == ("Namespace", "StatefulSet")
    assert found.count("Namespace") == 1


@pytest.mark.parametrize(
    ("storage", "user", "level"),
    [("pvc", 1, "restricted"), ("pvc", None, "baseline"), ("hostPath", 1, None)],
)
def test_namespace_enforces_the_standard_that_its_pods_meet(
    storage: settings.Storage, user: int | None, level: str | None
) -> None:
    chosen = settings.InstallSettings(
        parts=("namespace",),
        volume=settings.Volume(storage=storage),
        place=settings.Placement(user=user),
    )
    (found,) = all_objects.objects(chosen)
    assert found["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == level
