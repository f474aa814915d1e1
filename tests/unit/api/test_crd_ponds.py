"""The definition of DataPonds: its columns, its rule, and how lists merge."""

from typing import Any

from kilnwork.api import crd, crd_ponds, kinds


def version() -> dict[str, Any]:
    found: dict[str, Any] = crd.definition(kinds.DATA_PONDS)["spec"]["versions"][0]
    return found


def spec_schema() -> dict[str, Any]:
    found: dict[str, Any] = version()["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def test_columns_are_in_the_order_of_the_definition() -> None:
    names = [column["name"] for column in version()["additionalPrinterColumns"]]
    assert names == ["Ready", "Nodes", "Used", "Snapshots", "Reason", "Age"]


def test_only_the_reason_is_a_wide_column() -> None:
    columns = version()["additionalPrinterColumns"]
    assert [one["name"] for one in columns if one.get("priority")] == ["Reason"]


def test_each_column_shows_the_field_of_its_name() -> None:
    paths = {one["name"]: one["jsonPath"] for one in version()["additionalPrinterColumns"]}
    assert paths["Ready"] == ".status.nodes.ready"
    assert paths["Nodes"] == ".status.nodes.total"
    assert paths["Used"] == ".status.bytes.used"
    assert paths["Snapshots"] == ".status.snapshotsTotal"


def test_the_watermarks_have_a_rule() -> None:
    rules = [(one["rule"], one["message"]) for one in spec_schema()["x-kubernetes-validations"]]
    assert ("self.lowWatermark <= self.highWatermark", crd_ponds.WATERMARK_RULE) in rules


def test_sources_merge_by_their_name() -> None:
    sources = spec_schema()["properties"]["sources"]
    assert sources["x-kubernetes-list-type"] == "map"
    assert sources["x-kubernetes-list-map-keys"] == ["name"]
