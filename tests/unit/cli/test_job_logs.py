"""Output of several indexes, line by line."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from kilnwork.cli import errors, job_logs, job_lookup


def test_pieces_become_whole_lines_with_a_prefix(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = job_logs.Prefixed("[oslo] ")
    for piece in (b"on", b"e\ntwo\n\nthr", b"ee"):
        lines.write(piece)
    assert capfdbinary.readouterr().out == b"[oslo] one\n[oslo] two\n[oslo] \n"
    lines.close()
    assert capfdbinary.readouterr().out == b"[oslo] three\n"
    lines.close()
    assert capfdbinary.readouterr().out == b""


class Session:
    """Session with a server that has a Job of `size` indexes, whose tasks are named by number.

    `states`: the states of indexes that are not running, by number.
    """

    def __init__(self, size: int, states: Mapping[int, str] | None = None) -> None:
        self.size, self.asked, self.states = size, 0, states or {}

    def one_namespace(self) -> str:
        return "default"

    async def ask(self, method: str, path: str, *, query: dict[str, str]) -> dict[str, Any]:
        self.asked += 1
        first, wanted = int(query.get("after", -1)) + 1, query.get("state")
        states = {n: self.states.get(n, "Running") for n in range(first, self.size)}
        items = [
            {"number": n, "label": str(n), "state": state, "task": f"t{n}"}
            for n, state in states.items()
            if wanted in (None, state)
        ]
        limit = int(query["limit"])
        return {
            "items": items[:limit],
            **({"after": items[limit - 1]["number"]} if len(items) > limit else {}),
        }


def _job(total: int, parallelism: dict[str, Any]) -> dict[str, Any]:
    spec = {"template": {"parallelism": parallelism}}
    return {"metadata": {"name": "x"}, "spec": spec, "status": {"indexes": {"total": total}}}


HUNDRED = [f"v{n}" for n in range(100)]


@pytest.mark.parametrize(
    ("index", "parallelism", "number"),
    [
        ("a=v99,b=v98", {"withMatrix": {"b": HUNDRED, "a": HUNDRED}}, 9998),
        ("9999", {"withMatrix": {"a": HUNDRED, "b": HUNDRED}}, 9999),
        ("k9999", {"withKeys": [f"k{n}" for n in range(10_000)]}, 9999),
        ("0", {"withCount": 10_000, "maxInFlight": 3}, 0),
        ("7", {"withResultOf": {"task": "list"}}, 7),
    ],
)
async def test_index_of_ten_thousand_is_found_with_one_request(
    index: str, parallelism: dict[str, Any], number: int
) -> None:
    session = Session(10_000)
    found = await job_logs.find_task(cast(Any, session), _job(10_000, parallelism), index)
    assert (found, session.asked) == (f"t{number}", 1)


@pytest.mark.parametrize("index", ["a=v99,b=v100", "v1", "10000", "-1", ""])
async def test_missing_index_is_not_found(index: str) -> None:
    session, parallelism = Session(10_000), {"withMatrix": {"a": HUNDRED, "b": HUNDRED}}
    with pytest.raises(errors.Missing, match="has no index"):
        await job_logs.find_task(cast(Any, session), _job(10_000, parallelism), index)
    assert session.asked == 0


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the indexes whose output was printed."""
    numbers: list[int] = []

    async def copy(s: Any, item: Mapping[str, Any], query: Any) -> None:
        numbers.append(item["number"])

    monkeypatch.setattr(job_logs, "_copy", copy)
    return numbers


async def _show(
    monkeypatch: pytest.MonkeyPatch, size: int, states: Mapping[int, str], *, follow: bool
) -> None:
    found = _job(size, {"withCount": size})
    found["status"]["phase"] = "Succeeded"

    async def get(s: Any, name: str) -> dict[str, Any]:
        return found

    monkeypatch.setattr(job_lookup, "get", get)
    query = {"follow": "true"} if follow else {}
    await job_logs.show(cast(Any, Session(size, states)), found, query, index=None)


def _waiting_before(first: int) -> dict[int, str]:
    return dict.fromkeys(range(first), "Waiting")


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("size", "states", "shown"),
    [
        (103, _waiting_before(100), [100, 101, 102]),
        (1003, _waiting_before(1000), [1000, 1001, 1002]),
        (3, {1: "Succeeded", 2: "Queued"}, [0, 1, 2]),
    ],
)
async def test_all_indexes_that_have_started_are_shown(
    monkeypatch: pytest.MonkeyPatch,
    copied: list[int],
    size: int,
    states: Mapping[int, str],
    shown: Sequence[int],
    follow: bool,  # noqa: FBT001
) -> None:
    await _show(monkeypatch, size, states, follow=follow)
    assert sorted(copied) == shown


async def test_failed_indexes_are_shown_first(
    monkeypatch: pytest.MonkeyPatch, copied: list[int]
) -> None:
    await _show(monkeypatch, 100, {98: "Failed"}, follow=False)
    assert copied == [98, *range(19)]


async def test_running_indexes_are_followed_before_ended_ones(
    monkeypatch: pytest.MonkeyPatch, copied: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    await _show(monkeypatch, 100, dict.fromkeys(range(90), "Succeeded"), follow=True)
    assert copied == [*range(90, 100), *range(10)]
    assert "only 20 indexes are followed" in capsys.readouterr().err
