"""Statements by name, and those that write many rows in one step."""

import sqlite3

import pytest

from kilnwork.dispatch.journal.sqlite import statements


def test_statements_are_found_by_name() -> None:
    text = "-- name: one\n-- what it is\nSELECT 1;\n\n-- name: two_more\nSELECT\n  2;\n"
    assert statements.parse(text) == {"one": "-- what it is\nSELECT 1", "two_more": "SELECT\n  2"}


def test_last_row_of_placeholders_is_repeated() -> None:
    found = statements.compact("INSERT INTO t -- why\n  SELECT (?) VALUES (?, ?,  ?)")
    assert found == ("(?,?,?)", "INSERT INTO t SELECT (?) VALUES {}")


def test_names_in_braces_are_replaced() -> None:
    assert statements.read("-- name: a\nSELECT {x}", {"x": "1 + 1"}) == {"a": "SELECT 1 + 1"}
    with pytest.raises(KeyError):
        statements.read("-- name: a\nSELECT {y}", {"x": "1"})


def test_no_name_in_braces_is_left() -> None:
    assert [name for name, text in statements.QUERIES.items() if "{" in text] == []


def test_migrations_make_tables_in_order() -> None:
    connection = sqlite3.connect(":memory:")
    for script in statements.MIGRATIONS:
        connection.executescript(script)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert {"task", "worker", "template"} <= tables
