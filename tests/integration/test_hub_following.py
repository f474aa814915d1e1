"""Many tasks at once: submitted, followed, suspended and killed by the hub's participants."""

import asyncio
import contextlib
from pathlib import Path

import apsw

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub, subscriptions
from kilnwork.kit import ids
from support import hubs, raw_worker, waiting


async def started(directory: Path) -> hub.Hub:
    dispatcher = hubs.make(directory)
    await dispatcher.start(hubs.socket_of(directory))
    return dispatcher


def submission(number: int, *, run: int = 1, source: bytes = b"") -> model.Submission:
    return model.Submission(
        task=ids.TaskId(number.to_bytes(16, "big")),
        namespace="ns",
        name=f"t-{number}",
        spec=api_task.TaskSpec(command=("true",), run=run),
        declared=False,
        source=source,
    )


async def submit_all(
    dispatcher: hub.Hub, submissions: list[model.Submission], *, new: bool = False
) -> list[subscriptions.Change]:
    there = dispatcher.participation.submit_now(submissions, new=new)
    await dispatcher.participation.write([])
    return there


async def test_followers_get_their_tasks_only_and_ends_after_commit(tmp_path: Path) -> None:
    dispatcher = await started(tmp_path)
    heard: list[subscriptions.Change] = []
    mine, other = submission(1), submission(2)
    stop = dispatcher.participation.follow({mine.task}, heard.extend)
    assert await submit_all(dispatcher, [mine, other], new=True) == []
    async with raw_worker.RawWorker(tmp_path / "run" / "channel.sock", name="w-0", slots=1) as one:
        for _ in range(2):
            run = await one.expect(messages.Run)
            one.started(run.ref)
            await one.wait_until_acknowledged(one.succeed(run.ref))
        await waiting.wait_until_async(lambda: any(change.over for change in heard), what="its end")
    assert {change.task for change in heard} == {mine.task}
    assert [change.state for change in heard][-1] is api_task.State.SUCCESS
    assert any(change.active and change.worker == "w-0" for change in heard)
    stop()
    await dispatcher.stop()


async def test_existing_tasks_are_returned(tmp_path: Path) -> None:
    dispatcher = await started(tmp_path)
    first = submission(1)
    await submit_all(dispatcher, [first], new=True)
    [again] = await submit_all(dispatcher, [first, submission(2)])
    assert (again.task, again.run, again.over) == (first.task, 1, False)
    dispatcher.participation.kill_now([first.task], reason="Killed", message="not wanted")
    await dispatcher.participation.write([])
    [killed] = await submit_all(dispatcher, [first])
    assert (killed.state, killed.message) == (api_task.State.KILLED, "not wanted")
    assert await submit_all(dispatcher, [submission(1, run=2)]) == []
    assert [one.run for one in dispatcher.participation.unfinished([first.task])] == [2]
    dispatcher.participation.suspend_now([first.task], suspended=True)
    await dispatcher.participation.write([])
    assert dispatcher.participation.unfinished([first.task])[0].suspended
    assert dispatcher.participation.knows(first.task)
    assert not dispatcher.participation.knows(submission(3).task)
    assert [
        one.run for one in dispatcher.participation.states([first.task, submission(3).task])
    ] == [2]
    await dispatcher.stop()


async def test_sources_take_turns_after_a_restart(tmp_path: Path) -> None:
    dispatcher = await started(tmp_path)
    many = [submission(number, source=b"a") for number in range(1, 9)]
    few = [submission(number, source=b"b") for number in range(11, 13)]
    await submit_all(dispatcher, [*many, *few], new=True)
    await dispatcher.stop()
    dispatcher = await started(tmp_path)
    order: list[int] = []
    async with raw_worker.RawWorker(tmp_path / "run" / "channel.sock", name="w-0", slots=1) as one:
        for _ in range(4):
            run = await asyncio.wait_for(one.expect(messages.Run), 30)
            order.append(int.from_bytes(run.ref.task, "big"))
            await one.wait_until_acknowledged(one.succeed(run.ref))
    assert order == [1, 11, 2, 12]
    await dispatcher.stop()


def test_change_states_whether_a_worker_has_the_task() -> None:
    states = {
        state: subscriptions.Change(
            ids.TaskId(b"1" * 16), 1, state, "", "", 1, 0, 0, "", None, False
        )
        for state in api_task.State
    }
    assert [state.value for state, change in states.items() if change.active] == [
        "Staging",
        "Running",
        "Killing",
    ]
    assert [state.value for state, change in states.items() if change.over] == [
        "Success",
        "Failed",
        "Killed",
    ]


async def test_calls_that_share_their_spec_are_rows_without_one(tmp_path: Path) -> None:
    """Oversized ones are refused one by one; after a restart they are unchanged."""
    spec = api_task.TaskSpec(call=api_task.Call(function="sums:add"), run=2)
    dispatcher = await started(tmp_path)
    sizes = (10, 800_000, 20)
    shared = [
        model.Submission(
            task=ids.TaskId(bytes([number]) * 16),
            namespace="ns",
            name=f"call-{number}",
            spec=spec,
            arguments=attempts.Payload(attempts.JSON, b'[["%b"],{}]' % (b"x" * size)),
            declared=False,
        )
        for number, size in enumerate(sizes, 1)
    ]
    there = await submit_all(dispatcher, shared, new=True)
    assert [(one.state, one.reason) for one in there] == [("Failed", "TaskTooLarge")]
    await dispatcher.stop()
    with contextlib.closing(apsw.Connection(str(tmp_path / "journal.db"))) as found:
        kept = found.execute("SELECT name, run, spec, length(arguments) FROM task").fetchall()
        assert kept == [("call-1", 2, b"", 19), ("call-3", 2, b"", 29)]
        assert len(found.execute("SELECT * FROM template").fetchall()) == 1
    dispatcher = await started(tmp_path)
    view = dispatcher.view(shared[0].task)
    assert view is not None
    assert (view.run, view.state, view.function) == (2, "Pending", "sums:add")
    await dispatcher.stop()
