"""How many requests the life of a Pod costs, on an API that says what the test wants."""

from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest

from kilnwork.api import api_resources, attempts, pod, task
from kilnwork.executors import container_logs, port
from kilnwork.executors.pod import PodExecutor, sidecar_container, template
from kilnwork.kit import ids
from kilnwork.kube import cache, client, errors

REF = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "label"}]}
ATTEMPT = port.Attempt(
    ref=REF, namespace="ns", name="t", owner_uid="u", spec=task.TaskSpec(pod=task.PodTemplate(SPEC))
)
NAME = template.pod_name("t", REF)
QUOTA = errors.from_status(403, "Forbidden", "exceeded quota: q")
STOP = port.Stop(2.0, "Killed")


def of_attempt(
    phase: str = "Running", *, version: int = 1, terminating: bool = False
) -> dict[str, Any]:
    """The Pod as an API server has it."""
    body = template.pod(ATTEMPT)
    body["metadata"] |= {"uid": "p", "resourceVersion": str(version)}
    if terminating:
        body["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:02Z",
            "deletionGracePeriodSeconds": 2,
        }
    began = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"name": "main", "state": began}
    body["spec"]["nodeName"] = "n"
    return {**body, "status": {"phase": phase, "containerStatuses": [container]}}


class Api:
    """Has one Pod or none, and keeps what it was asked."""

    def __init__(self, stored: dict[str, Any] | None, refusal: Exception | None = None) -> None:
        self.stored = stored
        self.refusal = refusal
        self.asked: list[str] = []
        self.graces: list[int] = []

    async def create(
        self, _: api_resources.Resource, body: dict[str, Any], *, strict: bool
    ) -> dict[str, Any]:
        assert strict, "fields that the API server does not know must be refused"
        self.asked.append("POST")
        if self.refusal is not None:
            raise self.refusal
        if self.stored is not None:
            raise errors.AlreadyExists(409, "AlreadyExists", NAME)
        self.stored = {**body, "metadata": {**body["metadata"], "uid": "p"}, "status": {}}
        return self.stored

    async def get(self, *_: Any, **__: Any) -> pod.Pod:
        self.asked.append("GET")
        if self.stored is None:
            raise errors.NotFound(404, "NotFound", NAME)
        return msgspec.convert(self.stored, pod.Pod)

    async def delete(
        self, *_: Any, resource_version: str, grace_s: int, **__: Any
    ) -> dict[str, Any]:
        self.graces.append(grace_s)
        self.asked.append(f"DELETE {resource_version}")
        if self.stored is None:
            raise errors.NotFound(404, "NotFound", NAME)
        if self.stored["metadata"]["resourceVersion"] != resource_version:
            raise errors.Conflict(409, "Conflict", NAME)
        return {}

    async def stream(
        self, path: str, *, query: dict[str, str], endless: bool
    ) -> AsyncGenerator[bytes, None]:
        what = "followed" if endless else query.get("limitBytes", "")
        self.asked.append(f"GET {path.rpartition('/')[2]} {what}")
        yield b"over "
        yield b"HTTP"


def executor(
    api: Api, *seen: dict[str, Any], read_log: container_logs.ReadLog | None = None
) -> PodExecutor:
    """With a cache that has seen these."""
    known: cache.Cache[pod.Pod] = cache.Cache()
    for one in seen:
        known.put(msgspec.convert(one, pod.Pod))
    return PodExecutor(cast("client.Client", api), known, read_log=read_log)


async def test_a_new_pod_costs_one_request() -> None:
    api = Api(None)
    assert (await executor(api).ensure(ATTEMPT)).phase is port.Phase.STAGING
    assert api.asked == ["POST"]


async def test_existing_pod_missing_in_the_cache_is_adopted() -> None:
    api = Api(of_attempt())
    assert (await executor(api).ensure(ATTEMPT)).phase is port.Phase.RUNNING
    assert api.asked == ["POST", "GET"]


async def test_existing_pod_that_fills_the_quota_is_adopted() -> None:
    api = Api(of_attempt(), QUOTA)
    assert (await executor(api).ensure(ATTEMPT)).phase is port.Phase.RUNNING


async def test_pod_refused_by_a_quota_waits() -> None:
    seen = await executor(Api(None, QUOTA)).ensure(ATTEMPT)
    assert (seen.reason, seen.exists) == ("QuotaExceeded", False)


async def test_started_pod_is_never_created_again() -> None:
    api = Api(None)
    seen = await executor(api).ensure(msgspec.structs.replace(ATTEMPT, began=True))
    assert api.asked == ["GET"]
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.LOST


async def test_an_init_container_called_as_the_sidecar_has_no_result() -> None:
    off = {"annotations": {sidecar_container.ANNOTATION: "false"}}
    made_of = task.PodTemplate(SPEC, off)
    attempt = msgspec.structs.replace(ATTEMPT, spec=task.TaskSpec(pod=made_of))
    seen = of_attempt("Succeeded")
    ended = {"name": sidecar_container.CONTAINER, "state": {"terminated": {"exitCode": 0}}}
    seen["status"]["initContainerStatuses"] = [ended]
    assert await executor(Api(seen), seen).result(attempt) is None


FAILED = {"terminated": {"exitCode": 3}}


@pytest.mark.parametrize(
    ("init", "main", "shown"),
    [
        ({"state": FAILED}, {}, ["init"]),
        ({"state": {"waiting": {}}, "lastState": FAILED}, {}, ["init"]),
        ({"state": {"running": {}}, "lastState": FAILED}, {}, []),
        ({"state": {"terminated": {"exitCode": 0}}, "lastState": FAILED}, {}, []),
        ({"state": FAILED}, {"terminated": {"startedAt": "2026-01-01T00:00:00Z"}}, [""]),
    ],
)
async def test_outputs_of_init_containers_are_only_of_failed_ones(
    init: dict[str, Any], main: dict[str, Any], shown: list[str]
) -> None:
    seen = of_attempt("Pending")
    seen["status"] |= {
        "containerStatuses": [{"name": "main", "state": main}],
        "initContainerStatuses": [
            {"name": sidecar_container.CONTAINER, "state": FAILED},
            {"name": "init", **init},
        ],
    }
    assert [output.name for output in await executor(Api(seen), seen).outputs(ATTEMPT)] == shown


async def test_a_kill_costs_one_request_and_its_proof_none() -> None:
    api = Api(of_attempt())
    assert (await executor(api, of_attempt()).stop(ATTEMPT, STOP)).outcome is None
    assert api.asked == ["DELETE 1"]
    ended = of_attempt("Failed", version=3, terminating=True)
    seen = await executor(api, ended).stop(ATTEMPT, STOP)
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.STOPPED
    assert api.asked == ["DELETE 1"]


async def test_a_kill_without_grace_does_not_remove_the_object_at_once() -> None:
    api = Api(of_attempt())
    await executor(api, of_attempt()).stop(ATTEMPT, port.Stop(0.0, "Killed"))
    assert api.graces == [1]


async def test_a_kill_deletes_nothing_that_has_changed_unseen() -> None:
    api = Api(of_attempt("Succeeded", version=2))
    seen = await executor(api, of_attempt(version=1)).stop(ATTEMPT, STOP)
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.SUCCEEDED
    assert api.asked == ["DELETE 1", "GET"]


async def test_a_pod_that_went_unseen_while_it_ran_proves_nothing() -> None:
    seen = await executor(Api(None), of_attempt()).stop(ATTEMPT, STOP)
    assert seen.outcome is not None
    assert not seen.outcome.proof


@pytest.mark.parametrize(
    "change",
    [{"labels": {}}, {"ownerReferences": []}, {"labels": {template.EXECUTOR_LABEL: "pod"}}],
)
async def test_pod_without_its_labels_is_still_ours(change: dict[str, Any]) -> None:
    stored = of_attempt()
    stored["metadata"] |= change
    api = Api(stored)
    seen = await executor(api).observe(ATTEMPT)
    assert (seen.outcome, seen.check_s) == (None, 5.0)  # whatever the watch says of it
    assert (await executor(api).stop(ATTEMPT, STOP)).outcome is None
    assert api.asked[-1] == "DELETE 1"


@pytest.mark.parametrize(
    "change", [{"labels": {}, "finalizers": []}, {"ownerReferences": [], "finalizers": []}]
)
async def test_a_pod_without_our_marks_is_a_strangers(change: dict[str, Any]) -> None:
    stored = of_attempt()
    stored["metadata"] |= change
    seen = await executor(Api(stored)).observe(ATTEMPT)
    assert seen.reason == "NameTaken"


@pytest.mark.parametrize(("phase", "good"), [("Running", True), ("Succeeded", False)])
def test_the_token_of_a_pod_that_is_over_is_good_for_nothing(phase: str, *, good: bool) -> None:
    made = executor(Api(None), of_attempt(phase))
    assert made.is_pod_of(ATTEMPT.ref, ATTEMPT.namespace, NAME, uid="p") is good


async def test_a_pod_that_is_watched_is_not_polled() -> None:
    assert (await executor(Api(None), of_attempt()).observe(ATTEMPT)).check_s is None


OUTPUT = port.AttemptOutput(name="", source="main", life=0, is_over=True)


def on_disk(*_: object) -> AsyncGenerator[bytes, None]:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"from "
        yield b"the disk"

    return pieces()


async def read(made: PodExecutor, *, skip: int = 0, follow: bool = False) -> bytes:
    how = port.LogRange(skip=skip, follow=follow, max_bytes=100)
    return b"".join([piece async for piece in made.logs(ATTEMPT, OUTPUT, how)])


async def test_output_of_this_machine_costs_no_request() -> None:
    api = Api(of_attempt())
    made = executor(api, of_attempt(), read_log=on_disk)
    assert await read(made) == b"from the disk"
    assert await read(made, skip=7) == b"e disk"
    assert api.asked == []


async def test_output_of_another_machine_is_asked_of_the_api_server() -> None:
    api = Api(of_attempt())
    made = executor(api, of_attempt(), read_log=lambda *_: None)
    assert await read(made, skip=3) == b"r HTTP"
    assert api.asked == ["GET log 103"]


async def test_output_that_still_comes_is_followed_at_the_api_server() -> None:
    api = Api(of_attempt())
    made = executor(api, of_attempt(), read_log=on_disk)
    assert await read(made, follow=True) == b"over HTTP"
    assert api.asked == ["GET log followed"]
