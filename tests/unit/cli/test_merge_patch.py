"""`kiln apply`: changes of a manifest to the live object."""

from typing import Any

import msgspec

from kilnwork.cli import merge_patch


def merged(live: Any, change: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return change
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def manifest(**spec: Any) -> dict[str, Any]:
    return {"kind": "Task", "metadata": {"name": "a"}, "spec": spec}


def test_same_manifest_changes_nothing() -> None:
    live = merge_patch.annotated(manifest(args=["1"], slots=1))
    live["metadata"]["uid"] = "u"
    live["spec"]["retry"] = {"maxAttempts": 1}
    assert merge_patch.patch(live, manifest(args=["1"], slots=1.0)) == {}


def test_omitted_field_is_removed_but_not_those_of_other_clients() -> None:
    live = merge_patch.annotated(manifest(args=["1"], suspend=True))
    live["spec"]["priority"] = 5
    after = merged(live, merge_patch.patch(live, manifest(args=["2"])))
    assert after["spec"] == {"args": ["2"], "priority": 5}
    assert merge_patch.patch(after, manifest(args=["2"])) == {}


def test_object_without_the_annotation_loses_no_field() -> None:
    live = manifest(args=["1"], suspend=True)
    after = merged(live, merge_patch.patch(live, manifest(args=["2"])))
    assert after["spec"] == {"args": ["2"], "suspend": True}
    assert merge_patch.LAST_APPLIED in after["metadata"]["annotations"]


def test_annotation_alone_is_no_change() -> None:
    assert merge_patch.patch(manifest(args=["1"]), manifest(args=["1"])) == {}


def test_true_is_not_one_and_null_removes() -> None:
    live = manifest(suspend=True, priority=1)
    assert merge_patch.patch(live, manifest(suspend=1))["spec"] == {"suspend": 1}
    assert merge_patch.patch(live, manifest(priority=None))["spec"] == {"priority": None}


def test_annotation_is_what_kubectl_reads() -> None:
    body = merge_patch.annotated(manifest(args=["ü"]))
    text = body["metadata"]["annotations"][merge_patch.LAST_APPLIED]
    assert msgspec.json.decode(text) == {
        "kind": "Task",
        "metadata": {"name": "a", "annotations": {}},
        "spec": {"args": ["ü"]},
    }


def test_unreadable_annotation_counts_as_none() -> None:
    assert merge_patch.last_applied("{") == {}
    assert merge_patch.last_applied("[1]") == {}
