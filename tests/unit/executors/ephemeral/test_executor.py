"""Adding a container while others do the same, on an API that says what the test wants."""

from typing import Any, cast

import msgspec
import pytest

from kilnwork.api import attempts, pod, task
from kilnwork.executors import port
from kilnwork.executors.ephemeral import EphemeralExecutor, executor, template
from kilnwork.kit import http_types, ids
from kilnwork.kube import cache, client, errors

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
ATTEMPT = port.Attempt(
    ref=REF, namespace="ns", name="t", owner_uid="", spec=task.TaskSpec(command=("true",)),
    place=port.WorkerPod(pod="w-0", pod_uid="u"),
)  # fmt: skip
REMOVED = errors.Invalid(422, "Invalid", 'existing ephemeral containers "x" may not be removed')


OURS = {"KILN_TASK_ID": ids.task_text(REF.task), "KILN_RUN": "1", "KILN_ATTEMPT": "1"}
Body = dict[str, Any]


def worker(*names: str, variables: dict[str, str] = OURS) -> Body:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return {
        "metadata": {"name": "w-0", "namespace": "ns", "uid": "u"},
        "spec": {"ephemeralContainers": [{"name": name, "env": env} for name in names]},
    }


class Api:
    """Refuses as often as it has refusals; shows the Pods it has, one after the other."""

    def __init__(self, refusals: int, *shown: Body) -> None:
        self.refusals = refusals
        self.shown = list(shown)
        self.paths: list[str] = []

    async def raw(
        self, method: str, path: str, *, body: bytes, **_: Any
    ) -> http_types.ClientResponse:
        self.paths.append(msgspec.json.decode(body)[1]["path"])
        if len(self.paths) <= self.refusals:
            raise REMOVED
        return cast("http_types.ClientResponse", Response(b"{}"))

    async def get(self, *_: Any, type: type[Any], **__: Any) -> Any:  # noqa: A002
        found = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        return msgspec.convert(found, type)


class Response:
    """As much of one as is read."""

    def __init__(self, body: bytes) -> None:
        self.body = body


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "ADD_AGAIN_S", 0.0)


def executor_with(api: Api, cached: Body) -> EphemeralExecutor:
    known: cache.Cache[pod.Pod] = cache.Cache()
    known.put(msgspec.convert(cached, pod.Pod))
    return EphemeralExecutor(cast("client.Client", api), known)


async def ensured(api: Api) -> port.Observation:
    return await executor_with(api, worker()).ensure(ATTEMPT)


async def test_second_container_is_appended_despite_a_stale_read() -> None:
    api = Api(2, worker(), worker("x"))
    assert (await ensured(api)).phase is port.Phase.STAGING
    at = "/spec/ephemeralContainers"
    assert api.paths == [at, at, f"{at}/-"]


async def test_existing_container_is_adopted() -> None:
    api = Api(1, worker("x", template.container_name(REF)))
    assert (await ensured(api)).phase is port.Phase.STAGING
    assert len(api.paths) == 1


async def test_container_that_is_always_refused_fails_for_good() -> None:
    api = Api(99, worker("x"))
    seen = await ensured(api)
    assert len(api.paths) == executor.ADD_TRIES
    assert seen.outcome is not None
    assert (seen.outcome.reason, seen.outcome.may_retry) == ("AdmissionError", False)


async def test_started_container_is_looked_up_before_it_is_lost() -> None:
    began = msgspec.structs.replace(ATTEMPT, began=True)
    name = template.container_name(REF)
    seen = await executor_with(Api(0, worker(name)), worker()).ensure(began)
    assert seen.phase is port.Phase.STAGING
    seen = await executor_with(Api(0, worker("x")), worker()).ensure(began)
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.LOST


@pytest.mark.parametrize("variables", [{}, {**OURS, "KILN_ATTEMPT": "2"}])
async def test_a_strangers_container_is_neither_adopted_nor_killed(
    variables: dict[str, str],
) -> None:
    pods = worker(template.container_name(REF), variables=variables)
    tested = executor_with(Api(0, pods), pods)
    killed: list[attempts.AttemptRef] = []

    def kill(pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        killed.append(ref)
        return True

    tested.use(kill)
    seen = await tested.ensure(ATTEMPT)
    assert seen.outcome is not None
    assert (seen.outcome.reason, seen.outcome.may_retry) == ("NameTaken", False)
    assert "was not made for this task" in seen.outcome.message
    assert f"kiln retry {ATTEMPT.name} -n {ATTEMPT.namespace}" in seen.outcome.message
    seen = await tested.stop(ATTEMPT, port.Stop(0.0, "Killed"))
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.STOPPED
    assert killed == []
