"""Output of several indexes, line by line."""

from typing import Any, cast

import pytest

from kilnwork.cli import errors, job_logs


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
    """Session with a server that has a Job of `count` indexes, whose tasks are named by number."""

    def __init__(self, size: int) -> None:
        self.size, self.asked = size, 0

    def one_namespace(self) -> str:
        return "default"

    async def ask(self, method: str, path: str, *, query: dict[str, str]) -> dict[str, Any]:
        self.asked += 1
        first = int(query.get("after", -1)) + 1
        numbers = range(first, min(first + int(query["limit"]), self.size))
        return {"items": [{"number": n, "state": "Running", "task": f"t{n}"} for n in numbers]}


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
