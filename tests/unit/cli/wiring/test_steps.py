"""Parts of a server report their progress while they start."""

from kilnwork.cli.wiring import steps


async def test_starting_part_reports_its_progress() -> None:
    parts = steps.Steps()
    said: list[str] = []
    checks: list[dict[str, str | None]] = []

    async def start() -> None:
        parts.progress("dispatcher", "importing 3 jobs")
        checks.append(parts.checks())

    parts.plan([("dispatcher", start)])
    await parts.start(say=said.append)
    assert said == ["starting: dispatcher", "starting: dispatcher: importing 3 jobs"]
    assert checks == [{"dispatcher": "is starting: importing 3 jobs"}]
    assert parts.checks() == {"dispatcher": None}
