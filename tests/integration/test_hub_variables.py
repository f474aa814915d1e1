"""Values of variables go to the holder of the attempt, and to no other worker."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from kilnwork.api import env_sources
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.kit import errors, ids
from support import hubs, raw_worker, waiting

ENV = (
    api_task.EnvVar(name="PLAIN", value="x"),
    api_task.EnvVar(
        name="TOKEN",
        value_from=api_task.EnvSource(secret_key_ref=api_task.KeyRef(name="db", key="token")),
    ),
)


class Secrets:
    """A `hub.environment_variables.VariableSource`: the Secrets of each namespace, and a count of
    reads.
    """

    def __init__(self) -> None:
        self.known = {("ns", "db"): {"token": b"t-1", "other": b"not asked for"}}
        self.reads: Counter[tuple[str, str]] = Counter()
        self.failures = 0

    async def read(
        self, namespace: str, source: env_sources.VariableSource
    ) -> Mapping[str, bytes] | None:
        self.reads[namespace, source.name] += 1
        if self.failures:
            self.failures -= 1
            raise errors.KilnError("the API server is away")
        return self.known.get((namespace, source.name))


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
async def dispatcher(tmp_path: Path, secrets: Secrets) -> AsyncIterator[hub.Hub]:
    async with hubs.running(tmp_path, options=hub.HubOptions(variables=secrets)) as started:
        yield started


def _worker(directory: Path, name: str) -> raw_worker.RawWorker:
    return raw_worker.RawWorker(directory / "run" / "channel.sock", name=name, slots=2)


def _task() -> model.Submission:
    spec = api_task.TaskSpec(command=("true",), env=ENV)
    return model.Submission(task=ids.new_task_id(), namespace="ns", name="t", spec=spec)


def _reason(dispatcher: hub.Hub, run: messages.Run, wanted: str) -> model.TaskView | None:
    view = hubs.view(dispatcher, run.ref.task)
    return view if view.reason == wanted else None


async def test_holder_of_an_attempt_gets_the_values_of_its_spec(
    dispatcher: hub.Hub, tmp_path: Path, secrets: Secrets
) -> None:
    async with _worker(tmp_path, "w-0") as worker:
        await dispatcher.submit(_task())
        run = await worker.expect(messages.Run)
        assert run.spec.env == ENV
        worker.say(messages.GetVariables(7, run.ref), messages.GetVariables(8, run.ref))
        responses = [await worker.expect(messages.Response) for _ in range(2)]
        assert {(a.serial, a.status) for a in responses} == {(7, 200), (8, 200)}
        assert all(env_sources.decode(a.body) == {"TOKEN": "t-1"} for a in responses)
        assert secrets.reads["ns", "db"] <= 2
        worker.say(messages.GetVariables(9, run.ref))
        await worker.expect(messages.Response)
        assert secrets.reads["ns", "db"] <= 2  # values are cached for a moment


async def test_other_workers_get_no_values(dispatcher: hub.Hub, tmp_path: Path) -> None:
    async with _worker(tmp_path, "w-0") as worker:
        await dispatcher.submit(_task())
        run = await worker.expect(messages.Run)
        async with _worker(tmp_path, "w-1") as other:
            other.say(messages.GetVariables(1, run.ref))
            response = await other.expect(messages.Response)
            assert (response.status, b"t-1" in response.body) == (409, False)
        worker.succeed(run.ref, b"1")
        worker.say(messages.GetVariables(2, run.ref))
        assert (await worker.expect(messages.Response)).status == 409


async def test_unavailable_source_is_queried_again(
    dispatcher: hub.Hub, tmp_path: Path, secrets: Secrets
) -> None:
    secrets.failures = 1_000
    async with _worker(tmp_path, "w-0") as worker:
        await dispatcher.submit(_task())
        run = await worker.expect(messages.Run)
        worker.say(messages.GetVariables(1, run.ref))
        waits = await waiting.wait_until_async(
            lambda: _reason(dispatcher, run, "WaitingForVariables"), what="it says so"
        )
        assert waits is not None
        assert waits.message == "the API server is away"
        secrets.failures = 0
        response = await worker.expect(messages.Response)
        assert env_sources.decode(response.body) == {"TOKEN": "t-1"}
        await waiting.wait_until_async(
            lambda: _reason(dispatcher, run, "Started"), what="it goes on"
        )


async def test_missing_variable_is_named_without_values(
    dispatcher: hub.Hub, tmp_path: Path, secrets: Secrets
) -> None:
    secrets.known["ns", "db"].pop("token")
    async with _worker(tmp_path, "w-0") as worker:
        await dispatcher.submit(_task())
        run = await worker.expect(messages.Run)
        worker.say(messages.GetVariables(1, run.ref))
        response = await worker.expect(messages.Response)
        assert response.status == env_sources.MISSING
        message = env_sources.refusal(response.body)
        assert message == "variable TOKEN: key token of Secret db does not exist"
