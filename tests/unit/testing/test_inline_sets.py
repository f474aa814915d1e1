"""SyncSets in this process: their data, outputs, and what is no set."""

import os
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import sync_set_env
from kilnwork.testing import inline_flows, inline_sets


def declared(**data: Any) -> dict[str, Any]:
    return {
        "spec": {
            "resources": {"groups": [{"name": "cpu"}]},
            "data": {"snapshots": [{"name": "trades", **data}]},
            "flow": {"do": [{"a": {"call": "os:getpid"}}], "result": "1 + 1"},
        }
    }


INLINE = {"from": {"inline": {"a.txt": "1"}}}
POND = {"from": {"source": "market"}}


def test_inline_data_needs_no_files() -> None:
    view = inline_sets.run_set(declared(**INLINE))
    assert (view.phase, view.value) == ("Succeeded", 2)


def test_data_of_a_pond_is_given_as_a_directory_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    for place in (tmp_path, tmp_path / "a.txt"):
        assert inline_sets.run_set(declared(**POND), data={"trades": place}).phase == "Succeeded"


@pytest.mark.parametrize(
    ("data", "given", "words"),
    [
        (POND, {}, "comes from a pond"),
        (POND, {"trades": "/no/such"}, "there is no /no/such"),
        (INLINE, {"prices": "/"}, "'prices' is no snapshot of the set; there are: trades"),
        ({"from": {"inline": {"../a": "1"}}}, {}, "inline file '../a'"),
    ],
)
def test_data_that_does_not_fit_the_set_is_refused(
    data: dict[str, Any], given: dict[str, str], words: str
) -> None:
    with pytest.raises(inline_flows.InvalidFlow, match=words):
        inline_sets.run_set(declared(**data), data=given)


@pytest.mark.parametrize("body", [{}, {"spec": {}}, {"spec": {"flows": 1}}])
def test_another_object_is_no_set(body: dict[str, Any]) -> None:
    with pytest.raises(inline_flows.InvalidFlow, match="this is no SyncSet"):
        inline_sets.run_set(body)


def test_variables_of_the_process_are_unchanged_afterwards() -> None:
    before = os.environ.get(sync_set_env.OUTPUTS)
    inline_sets.run_set(declared(**INLINE))
    assert os.environ.get(sync_set_env.OUTPUTS) == before
