"""CustomResourceDefinitions: defaults, versions, names, and their conditions."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import definitions

Json = dict[str, Any]
BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NAMES = {"plural": "xs", "singular": "x", "kind": "X", "listKind": "XList"}


def version(name: str, **more: Any) -> Json:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {"name": name, "served": True, "storage": False, "schema": schema, **more}


def definition(*versions: Json, status: Json | None = None, **names: Any) -> Json:
    return {
        "metadata": {"name": "xs.x.dev"},
        "spec": {
            "group": "x.dev",
            "scope": "Namespaced",
            "names": NAMES | names,
            "versions": list(versions) or [version("v1", storage=True)],
        },
        "status": status or {},
    }


def test_names_follow_from_the_kind() -> None:
    found: Json = {"spec": {"names": {"plural": "xs", "kind": "X", "other": "dropped"}}}
    definitions.default(found)
    assert found["spec"] == {"names": NAMES, "conversion": {"strategy": "None"}}


def test_versions_sort_by_maturity() -> None:
    names = ["v1beta1", "other", "v1", "v2alpha1", "v10", "v2", "v1beta2"]
    assert sorted(names, key=definitions.priority, reverse=True) == [
        *("v10", "v2", "v1"),
        *("v1beta2", "v1beta1", "v2alpha1", "other"),
    ]


def test_served_versions_come_newest_first() -> None:
    found = definition(version("v1", storage=True), version("v3", served=False), version("v2"))
    served = list(definitions.served_by(found))
    assert [one.resource.version for one in served] == ["v2", "v1"]
    assert {one.storage_version for one in served} == {"v1"}
    assert not any(one.terminating for one in served)
    found["metadata"]["deletionTimestamp"] = NOW
    assert all(one.terminating for one in definitions.served_by(found))


def test_accepted_names_are_served() -> None:
    accepted = NAMES | {"plural": "olds"}
    (served,) = definitions.served_by(definition(status={"acceptedNames": accepted}))
    assert served.resource.plural == "olds"
    assert served.storage_version == ""


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"plural": "ys", "kind": "Y"}, None),
        ({"plural": "xs", "kind": "Y"}, "PluralConflict"),
        ({"plural": "ys", "kind": "Y", "shortNames": ["x"]}, "SingularConflict"),
        ({"plural": "ys", "kind": "X"}, "KindConflict"),
        ({"plural": "ys", "kind": "XList"}, "ListKindConflict"),
    ],
)
def test_names_in_use_are_not_had(other: Json, reason: str | None) -> None:
    names, conflict = definitions.accept_names(definition(), {"other": [other]})
    assert (conflict.reason if conflict else None) == reason
    assert (names == NAMES) is (reason is None)
    if conflict is not None:
        assert conflict.holder == "other"


def test_names_that_were_accepted_stay() -> None:
    found = definition(status={"acceptedNames": NAMES})
    assert definitions.accept_names(found, {"other": [NAMES]}) == (NAMES, None)


def test_what_is_established_stays_so() -> None:
    found = definition()
    found["status"] = definitions.status(found, NAMES, None, now=BEFORE)
    assert definitions.is_established(found)
    assert found["status"]["storedVersions"] == ["v1"]
    conflict = definitions.NameConflict("KindConflict", "m", "")
    status = definitions.status(found, NAMES, conflict, now=NOW)
    shown = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in status["conditions"]}
    assert shown == {"NamesAccepted": ("False", NOW), "Established": ("True", BEFORE)}


def test_a_new_definition_with_a_conflict_is_not_established() -> None:
    conflict = definitions.NameConflict("KindConflict", "m", "")
    found = definition()
    found["status"] = definitions.status(found, NAMES, conflict, now=NOW)
    assert not definitions.is_established(found)


def test_a_deleted_definition_waits_for_its_objects() -> None:
    marked = definitions.mark_deleted(definition(), now=BEFORE)
    assert marked["metadata"]["finalizers"] == [definitions.CLEANUP]
    assert marked["metadata"]["deletionTimestamp"] == BEFORE
    (first,) = marked["status"]["conditions"]
    (then,) = definitions.terminating(marked, now=NOW)["conditions"]
    assert first["reason"] == "InstanceDeletionPending"
    assert then["reason"] == "InstanceDeletionInProgress"
    assert then["lastTransitionTime"] == BEFORE
