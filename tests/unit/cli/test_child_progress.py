"""Progress of the children of a task in one line, and a line for each failed one."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from kilnwork.cli import child_progress, options, session
from kilnwork.kit import clock


class Server:
    """Session whose lists a test sets."""

    def __init__(self) -> None:
        self.clock = clock.ManualClock()
        self.namespace = "default"
        self.target = options.ServerTarget()
        self.items: list[dict[str, Any]] = []
        self.asked: list[Mapping[str, str]] = []

    async def ask(self, _: str, __: str, *, query: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append(dict(query))
        return {"items": list(reversed(self.items))}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def children(server: Server) -> child_progress.Children:
    return child_progress.Children(cast(session.Session, server), "total")


def failed(number: int, **facts: Any) -> dict[str, Any]:
    task = f"0199a0d2-7c1e-7d35-8a51-0d4c5c1f{number:04x}"
    return {"id": task, "name": task, "function": "m:leaf", "message": "ValueError: no", **facts}


def test_line_has_bar_rate_and_failures(server: Server, children: child_progress.Children) -> None:
    assert children.line(None) == ""
    assert children.line({"total": 0}) == ""
    assert children.line({"total": 4}) == "[..........]   0%  0 of 4 tasks"
    server.clock.advance(1.0)
    line = children.line({"total": 4, "succeeded": 1, "failed": 1})
    assert line == "[#####.....]  50%  2 of 4 tasks  1 s left  2/s  1 failed"


async def test_each_failure_is_printed_once(
    server: Server, children: child_progress.Children, capsys: pytest.CaptureFixture[str]
) -> None:
    await children.tell({"total": 3, "failed": 0})
    assert server.asked == []
    server.items = [failed(1)]
    await children.tell({"total": 3, "failed": 1})
    await children.tell({"total": 3, "failed": 1})
    server.items.append(failed(2, name="named", message="exit code 1\nmore"))
    await children.tell({"total": 3, "failed": 2})
    assert capsys.readouterr().err.splitlines() == [
        "m:leaf (5c1f0001) failed: ValueError: no",
        "named (5c1f0002) failed: exit code 1",
    ]
    assert [asked["parent"] for asked in server.asked] == ["total", "total"]


async def test_only_the_first_of_many_failures_are_printed(
    server: Server, children: child_progress.Children, capsys: pytest.CaptureFixture[str]
) -> None:
    server.items = [failed(number) for number in range(child_progress.MAX_SHOWN + 5)]
    await children.tell({"total": 100, "failed": len(server.items)})
    await children.tell({"total": 100, "failed": len(server.items) + 1})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == child_progress.MAX_SHOWN + 1
    assert lines[-1].endswith("`kiln tasks --parent total --state Failed` lists them")
    assert len(server.asked) == 1


def test_no_progress_is_shown_without_a_terminal(server: Server) -> None:
    assert child_progress.children(cast(session.Session, server), "total") is None
