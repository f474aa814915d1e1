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
    place=port.Place(pod="w-0", pod_uid="u"),
)  # fmt: skip
REMOVED = errors.Invalid(422, "Invalid", 'existing ephemeral containers "x" may not be removed')


def worker(*names: str) -> pod.Pod:
    body = {
        "metadata": {"name": "w-0", "namespace": "ns", "uid": "u"},
        "spec": {"ephemeralContainers": [{"name": name} for name in names]},
    }
    return msgspec.convert(body, pod.Pod)


class Api:
    """Refuses as often as it has refusals; shows the Pods it has, one after the other."""

    def __init__(self, refusals: int, *shown: pod.Pod) -> None:
        self.refusals = refusals
        self.shown = list(shown)
        self.paths: list[str] = []

    async def raw(self, method: str, path: str, *, body: bytes, **_: Any) -> http_types.Response:
        self.paths.append(msgspec.json.decode(body)[1]["path"])
        if len(self.paths) <= self.refusals:
            raise REMOVED
        return cast("http_types.Response", Response(b"{}"))

    async def get(self, *_: Any, **__: Any) -> pod.Pod:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]


class Response:
    """As much of one as is read."""

    def __init__(self, body: bytes) -> None:
        self.body = body


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "ADD_AGAIN_S", 0.0)


async def ensured(api: Api) -> port.Observation:
    known: cache.Cache[pod.Pod] = cache.Cache()
    known.put(worker())
    return await EphemeralExecutor(cast("client.Client", api), known).ensure(ATTEMPT)


async def test_who_is_second_appends_also_when_a_read_shows_nothing_yet() -> None:
    api = Api(2, worker(), worker("x"))
    assert (await ensured(api)).phase is port.Phase.STAGING
    at = "/spec/ephemeralContainers"
    assert api.paths == [at, at, f"{at}/-"]


async def test_what_was_added_before_is_adopted() -> None:
    api = Api(1, worker("x", template.container_name(REF)))
    assert (await ensured(api)).phase is port.Phase.STAGING
    assert len(api.paths) == 1


async def test_what_is_always_refused_fails_for_good() -> None:
    api = Api(99, worker("x"))
    seen = await ensured(api)
    assert len(api.paths) == executor.ADD_TRIES
    assert seen.outcome is not None
    assert (seen.outcome.reason, seen.outcome.may_retry) == ("AdmissionError", False)
