"""Rules that definitions and validation share."""

import pytest

from kilnwork.api import crd_parts


@pytest.mark.parametrize("field", crd_parts.ALONE)
def test_a_field_that_stands_alone_excludes_all_others(field: str) -> None:
    excluded = crd_parts.beside(field)
    assert field not in excluded
    assert len(excluded) == 4 + len(crd_parts.ALONE) - 1
    assert crd_parts.alone_rule(field).startswith(f"give {field} without command, args")


def test_each_field_that_stands_alone_has_a_rule() -> None:
    expressions = [rule["rule"] for rule in crd_parts.task_rules()]
    for field in crd_parts.ALONE:
        (found,) = (one for one in expressions if one.startswith(f"!has(self.{field}) ||"))
        assert f"has(self.{field})" not in found.partition("||")[2]


def test_column_has_priority_and_description() -> None:
    wide = crd_parts.column("Node", ".status.node", wide=True, about="Where")
    assert wide["priority"] == 1
    assert wide["description"] == "Where"
    assert "priority" not in crd_parts.AGE


def test_the_length_of_a_name_is_in_rule_and_message() -> None:
    made = crd_parts.name_is_short(52)
    assert made["rule"] == "self.metadata.name.size() <= 52"
    assert made["message"] == crd_parts.name_rule(52) == "must be no more than 52 characters"
