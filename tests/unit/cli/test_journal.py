"""Tasks of the journal as text: the table, parents by name, errors as Python prints them."""

from kilnwork.cli import journal

PARENT = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a10"
CHILD = "0199a0d2-7c1e-7d35-8a51-0d4c5c1f2a11"


def test_a_table_names_parents_and_leaves_out_what_is_not_there() -> None:
    items = [
        {
            "id": CHILD,
            "name": CHILD,
            "function": "words:count",
            "state": "Failed",
            "reason": "Exception",
            "attempts": 2,
            "parent": f"{PARENT}/1/1",
        },
        {"id": PARENT, "name": "all", "state": "Running", "reason": "", "attempts": 1},
    ]
    header, child, parent = (line.split() for line in journal.table(items))
    assert header == ["ID", "NAME", "FUNCTION", "STATE", "REASON", "ATTEMPTS", "PARENT"]
    assert child == [CHILD, "<none>", "words:count", "Failed", "Exception", "2", "all"]
    assert parent == [PARENT, "all", "<none>", "Running", "<none>", "1", "<none>"]


def test_parents_beyond_the_list_are_named_when_known_else_shown_by_id() -> None:
    names = {"0a": "first"}
    assert journal.parent({"parent": "0a/1/1"}, names) == "first"
    assert journal.parent({"parent": "0b/1/2"}, names) == "0b"
    assert journal.parent({}, names) is None


def test_an_error_is_printed_after_what_caused_it() -> None:
    cause = {"type": "OSError", "text": "gone", "traceback": "Traceback\nOSError: gone\n"}
    error = {"type": "ValueError", "text": "bad", "notes": ["in part 7"], "cause": cause}
    assert list(journal.traceback(error)) == [
        "Traceback",
        "OSError: gone",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "ValueError: bad",
        "in part 7",
    ]
    assert list(journal.traceback(None)) == []
