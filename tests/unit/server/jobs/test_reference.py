"""The table of parameters in the docs."""

import collections

from kilnwork.server.jobs import parameters, reference


def test_each_parameter_is_in_table_once() -> None:
    names = collections.Counter(name for one in reference.TABLE for name in one.names)
    assert [name for name, count in names.items() if count > 1] == []
    assert set(parameters.KNOWN) <= set(names)


def test_row_has_names_meaning_default_and_outcome() -> None:
    rows = reference.table().splitlines()
    assert rows[0] == reference.BEGIN
    assert rows[-1] == reference.END
    assert "| `cluster`, `clusterName` | the TaskCluster | `default` | done |" in rows
    assert len(rows) == len(reference.TABLE) + 4


def test_table_is_written_between_its_markers() -> None:
    page = f"before\n{reference.BEGIN}\nold\n{reference.END}\nafter\n"
    found = reference.written(page)
    assert found == f"before\n{reference.table()}\nafter\n"
    assert reference.written(found) == found
