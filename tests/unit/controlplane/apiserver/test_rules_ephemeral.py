"""Rules for ephemeral containers: only new ones are judged, and none changes."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import rules_ephemeral

Json = dict[str, Any]
FIELD = "spec.ephemeralContainers"


def debug_container(name: str = "d", **more: Any) -> Json:
    return {"name": name, "image": "i", **more}


def pod(*containers: Json) -> Json:
    main = {"name": "main", "image": "i"}
    return {"spec": {"containers": [main], "ephemeralContainers": list(containers)}}


def problems_of(old: Json, new: Json) -> list[tuple[str, str]]:
    return [(c.field, c.reason) for c in rules_ephemeral.validate(old, new)]


def problems_of_added(container: Json) -> list[str]:
    rules_ephemeral.default(new := pod(container), pod())
    return [field for field, _ in problems_of(pod(), new)]


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({}, []),
        ({"targetContainerName": "main"}, []),
        ({"targetContainerName": "none"}, [f"{FIELD}[0].targetContainerName"]),
        ({"image": " i"}, [f"{FIELD}[0].image"]),
        ({"resources": {}}, []),
        ({"resources": {"limits": {"cpu": "1"}}}, [f"{FIELD}[0].resources"]),
        ({"lifecycle": {}}, [f"{FIELD}[0].lifecycle"]),
        ({"ports": []}, [f"{FIELD}[0].ports"]),
    ],
)
def test_invalid_new_ephemeral_container_is_rejected(more: Json, fields: list[str]) -> None:
    assert problems_of_added(debug_container(**more)) == fields


def test_name_of_another_container_is_rejected() -> None:
    assert problems_of_added(debug_container("main")) == [f"{FIELD}[0].name"]
    known = debug_container()
    rules_ephemeral.default(new := pod(known, debug_container()), pod(known))
    assert problems_of(pod(known), new)[0] == (f"{FIELD}[1].name", "FieldValueDuplicate")


def test_existing_containers_are_not_validated_again() -> None:
    known = debug_container(ports=[{}])
    assert problems_of(pod(known), pod(known)) == []


def test_existing_containers_cannot_change_or_be_removed() -> None:
    known = debug_container()
    assert problems_of(pod(known), pod()) == [(FIELD, "FieldValueForbidden")]
    changed = debug_container(image="other")
    rules_ephemeral.default(new := pod(changed), pod(known))
    assert problems_of(pod(known), new) == [(FIELD, "FieldValueForbidden")]
