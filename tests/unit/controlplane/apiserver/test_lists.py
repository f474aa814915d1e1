"""Selections and continue tokens."""

from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, selectors
from kilnwork.controlplane import store_types as values
from kilnwork.controlplane.apiserver import lists, options, requests, statuses
from support import served_kinds, store_world

CM = served_kinds.kind_of(api_resources.CONFIG_MAPS)
ALL = lists.ObjectSelection(None, selectors.EVERYTHING, selectors.EVERY_FIELD)


def list_options(query: dict[str, str]) -> options.ListOptions:
    return options.ListOptions.parse(requests.Query(query), watch=False)


def test_selection_decodes_objects_only_if_necessary() -> None:
    def fail_if_decoded() -> Any:
        raise AssertionError("looked")

    key = values.Key("configmaps", "default", "a")
    assert ALL.matches(key, fail_if_decoded)
    other = lists.ObjectSelection("other", selectors.parse_labels("x=y"), selectors.EVERY_FIELD)
    assert not other.matches(key, fail_if_decoded)
    named = lists.ObjectSelection(
        None, selectors.EVERYTHING, selectors.parse_fields("metadata.name=b")
    )
    assert not named.matches(key, fail_if_decoded)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("source=kubelet", True),
        ("source!=kubelet", False),
        ("spec.unschedulable=false", True),
        ("spec.unschedulable=true", False),
    ],
)
def test_field_selectors_map_to_other_paths_and_defaults(fields: str, expected: bool) -> None:  # noqa: FBT001
    obj = {"metadata": {"name": "a"}, "source": {"component": "kubelet"}, "spec": {}}
    chosen = lists.ObjectSelection(None, selectors.EVERYTHING, selectors.parse_fields(fields))
    assert chosen.matches(values.Key("events", "", "a"), lambda: obj) is expected


async def test_page_of_dropped_history_is_expired(tmp_path: Path) -> None:
    async with store_world.open_world(tmp_path, keep_changes=5) as world:
        for i in range(4):
            await world.create(api_resources.CONFIG_MAPS, f"c{i}")
        chosen = lists.ObjectSelection("default", selectors.EVERYTHING, selectors.EVERY_FIELD)
        first = lists.page(world.store, CM, chosen, list_options({"limit": "2"}))
        assert len(first.items) == 2
        more = list_options({"limit": "2", "continue": first.continue_})
        await world.create(api_resources.CONFIG_MAPS, "c9")
        assert len(lists.page(world.store, CM, chosen, more).items) == 2
        for i in range(10):
            await world.create(api_resources.CONFIG_MAPS, f"d{i}")
        with pytest.raises(statuses.StatusError) as caught:
            lists.page(world.store, CM, chosen, more)
        assert (caught.value.code, caught.value.reason) == (410, "Expired")
        onward = list_options({"limit": "2", "continue": caught.value.metadata["continue"]})
        now = lists.page(world.store, CM, chosen, onward)
        assert [stored.key.name for stored in now.items] == ["c2", "c3"]


@pytest.mark.parametrize("version", ["-1", "abc", "٣", "1e3", "9" * 20, "9" * 5000])
def test_invalid_resource_version_is_a_bad_request(version: str) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        lists.sequence_number(version)
    assert caught.value.code == 400


async def test_page_of_another_data_directory_is_expired(tmp_path: Path) -> None:
    async with store_world.open_world(tmp_path) as world:
        for i in range(3):
            await world.create(api_resources.CONFIG_MAPS, f"c{i}")
        first = lists.page(world.store, CM, ALL, list_options({"limit": "1"}))
    more = list_options({"limit": "1", "continue": first.continue_})
    other = tmp_path / "other"
    other.mkdir()
    async with store_world.open_world(other) as world:
        with pytest.raises(statuses.StatusError) as caught:
            lists.page(world.store, CM, ALL, more)
        assert caught.value.code == 410


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (b"{}", {}),
        (
            b'{"metadata":{"name":"p","labels":{"a":"b"},"uid":"u"},"spec":{"nodeName":"n","x":[1]}}',
            {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "n"}},
        ),
        (b'{"metadata":{"labels":null},"spec":null}', {"metadata": {"labels": None}, "spec": None}),
        (b'{"spec":"no object","y":1}', {"spec": "no object", "y": 1}),
    ],
    ids=["nothing", "pod", "null", "text"],
)
def test_selector_decoder_skips_other_fields(raw: bytes, seen: Any) -> None:
    assert lists.selector_decoder(("spec.nodeName", "spec.hostNetwork", "source"))(raw) == seen
