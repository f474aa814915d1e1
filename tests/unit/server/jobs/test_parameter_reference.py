"""The table of parameters in the docs."""

import collections

from kilnwork.server.jobs import parameter_reference, parameters


def test_each_parameter_is_in_table_once() -> None:
    names = collections.Counter(name for one in parameter_reference.TABLE for name in one.names)
    assert [name for name, count in names.items() if count > 1] == []
    assert set(parameters.KNOWN) <= set(names)


def test_row_has_names_meaning_default_and_outcome() -> None:
    rows = parameter_reference.table().splitlines()
    assert rows[0] == parameter_reference.BEGIN
    assert rows[-1] == parameter_reference.END
    assert "| `cluster`, `clusterName` | the TaskCluster | `default` | done |" in rows
    assert len(rows) == len(parameter_reference.TABLE) + 4


def test_table_is_written_between_its_markers() -> None:
    page = f"before\n{parameter_reference.BEGIN}\nold\n{parameter_reference.END}\nafter\n"
    found = parameter_reference.written(page)
    assert found == f"before\n{parameter_reference.table()}\nafter\n"
    assert parameter_reference.written(found) == found
