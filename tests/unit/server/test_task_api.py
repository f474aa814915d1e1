"""`/v1`: tasks of the journal, with rights, logs that follow, and problems in words."""

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, job_config, task
from kilnwork.controllers.data_pond import ledger
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs import index_job_types
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kit import asgi, clock, ids
from kilnwork.server import errors, pond_api, ports, task_api
from support import view_samples

A = ids.task_id("00000000-0000-7000-8000-00000000000a")
B = ids.task_id("00000000-0000-7000-8000-00000000000b")


def view(one: ids.TaskId, name: str, **changed: Any) -> model.TaskView:
    """The first task has failed, the second has a result, a third is not kept."""
    known = {"task": one, "name": name, "created": 1.0, "started": 2.0}
    return view_samples.running(**{**known, **changed})


class Journal:
    """A journal in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.views: dict[ids.TaskId, model.TaskView] = {}
        self.wanted = model.TaskQuery()

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        return self.views.get(task)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        found = (v for v in self.views.values() if (v.namespace, v.name) == (namespace, name))
        return next(found, None)

    async def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        known = [v for v in self.views.values() if v.namespace == namespace]
        return [v.task for v in known if v.task.hex().endswith(digits)][:limit]

    def tasks(
        self, namespace: str | None, *, wanted: model.TaskQuery, limit: int, below: int | None
    ) -> ports.TaskPage:
        self.wanted = wanted
        found = [v for v in reversed(self.views.values()) if namespace in (None, v.namespace)]
        rest = found[len(found) - (below or len(found)) :]
        left = len(rest) - limit
        return ports.TaskPage(rest[:limit], left if left > 0 else None)

    def counts(self, namespace: str | None) -> list[model.TaskCount]:
        return [
            model.TaskCount("default", True, "", task_state.FAILED, 1),
            model.TaskCount("default", False, "m:f", task_state.FAILED, 2),
            model.TaskCount("default", False, "m:f", task_state.RUNNING, 3),
        ]

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        return self.directory / f"{run}-{attempt}.log"

    async def kill(self, task: ids.TaskId) -> None:
        self.change(task, state=task_state.KILLING, reason="Killed")

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> None:
        self.change(task, suspended=suspended)

    async def retry_failed(self, task: ids.TaskId) -> model.Retried:
        await self.retry(task, force=False)
        return model.Retried(tasks=(task,), declared=("above",), left=2)

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        if self.views[task].state is task_state.SUCCESS and not force:
            raise dispatch_errors.RunRefused("it has succeeded")
        self.change(task, state=task_state.PENDING, run=2)

    async def prune(self, asked: model.Pruning, *, dry_run: bool) -> model.Pruned:
        self.pruned = asked, dry_run
        return model.Pruned(3, 1 << 20)

    async def forget(self, task: ids.TaskId) -> None:
        if not self.views[task].state.final:
            raise dispatch_errors.RunRefused("it is not over")
        del self.views[task]

    def change(self, one: ids.TaskId, **facts: Any) -> None:
        self.views[one] = msgspec.structs.replace(self.views[one], **facts)


task_state = task.State


class Outputs:
    """Brings no outputs from elsewhere unless the test sets what is brought."""

    def __init__(self) -> None:
        self.brings: dict[attempts.AttemptRef, Callable[[], None]] = {}
        self.followed: list[attempts.AttemptRef] = []

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        self.brings.get(ref, lambda: None)()

    @contextlib.asynccontextmanager
    async def following(self, ref: attempts.AttemptRef) -> AsyncIterator[None]:
        self.followed.append(ref)
        yield
        self.followed.remove(ref)


class Clusters:
    """Two namespaces, one of which has a cluster."""

    def namespaces(self) -> list[str]:
        return ["default", "secret"]

    def clusters(self, namespace: str) -> list[ports.ClusterSummary]:
        known = ports.ClusterSummary(name="small", workers=1, slots=2, busy=1, queued=0)
        return [known] if namespace == "default" else []


class Rights:
    """The user "reader" may only read logs, "guest" everything in one namespace, others
    everything."""

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        if user == "guest" and question.namespace != "default":
            return f"guest cannot {question.verb} tasks in {question.namespace}"
        if user == "reader" and (question.verb, question.subresource) != ("get", "log"):
            return f"reader cannot {question.verb} tasks"
        return None


class Jobs:
    """A Job `five` with five indexes, and one that has not been processed yet."""

    def config(self, namespace: str, name: str) -> job_config.JobConfig | None:
        option = {"type": "Int", "name": "day", "int": {"minimum": 1}}
        found = {"good": option, "bad": {**option, "string": {}}}.get(name)
        if found is None or namespace != "default":
            return None
        template = {"spec": {"taskTemplate": {"command": ["true"]}}}
        policy = {"policy": "Allow"}
        spec = {"template": template, "concurrency": policy, "option": {"options": [found]}}
        return msgspec.convert({"metadata": {"name": name}, "spec": spec}, job_config.JobConfig)

    def uid(self, namespace: str, name: str) -> str | None:
        return name if namespace == "default" and name in ("five", "new") else None

    async def indexes(
        self, uid: str, *, after: int, limit: int, state: index_job_types.IndexState | None
    ) -> list[index_job_types.IndexView]:
        if uid == "new":
            raise jobs_errors.NoSuchJob
        found = [index(number) for number in range(after + 1, 5)]
        return [one for one in found if state in (None, one.state)][:limit]


def index(number: int) -> index_job_types.IndexView:
    odd = number % 2
    return index_job_types.IndexView(
        number=number,
        label=f"key-{number}",
        state=index_job_types.IndexState.FAILED if odd else index_job_types.IndexState.WAITING,
        task=ids.task_text(A),
        name=f"five-{number}",
        run=1,
        attempt=odd,
        message="exit code 1" if odd else "",
        started=1_700_000_000.5 if odd else None,
    )


class Flows:
    """One SyncSet, `risk`, whose newest generation is the second."""

    def newest(self, namespace: str, name: str) -> flow_model.FlowKey | None:
        return flow_model.FlowKey("u", 2) if (namespace, name) == ("default", "risk") else None

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """The first has failed, the second has a result, a third is not kept."""
        if key.generation > 2:
            return None
        failed = key.generation == 1
        return flow_model.FlowRunView(
            uid=key.uid,
            namespace="default",
            set_name="risk",
            generation=key.generation,
            version=1,
            phase=flow_model.FlowPhase.FAILED if failed else flow_model.FlowPhase.SUCCEEDED,
            reason="",
            message="",
            suspended=False,
            started=0.0,
            finished=1.0,
            steps={},
            value=None if failed else {"total": [7] * 5000},
        )

    async def steps(
        self,
        key: flow_model.FlowKey,
        *,
        step: str,
        after: str,
        limit: int,
        state: flow_model.InstanceState | None,
    ) -> list[flow_model.InstanceView]:
        """Three shards of `price`."""
        if key.generation != 2:
            raise jobs_errors.NoSuchJob("there is no run")
        made = [
            flow_model.InstanceView(
                key=f"price[{n}]",
                step="price",
                state=flow_model.InstanceState.SUCCEEDED,
                task=f"t{n}",
            )
            for n in range(3)
        ]
        found = [one for one in made if one.key > after and step in ("", one.step)]
        return [one for one in found if state in (None, one.state)][:limit]


class Exchange:
    """One request that is controlled by the test: it records the response and can disconnect."""

    def __init__(self, app: asgi.App, path: str, *, method: str = "GET", user: Any = "me") -> None:
        self._app = app
        bare, _, query = path.partition("?")
        self._scope: asgi.Scope = {
            "type": "http", "method": method, "path": bare, "raw_path": bare.encode(),
            "query_string": query.encode(), asgi.USER: user,
        }  # fmt: skip
        self.status = 0
        self.content_type = ""
        self.body = b""
        self.polls: AsyncIterator[None] | None = None

    async def receive(self) -> asgi.Message:
        if self.polls is not None:
            async for _ in self.polls:
                raise TimeoutError  # as if the poll interval were over
        return {"type": "http.disconnect"}

    async def send(self, message: asgi.Message) -> None:
        self.status = message.get("status", self.status)
        headers = dict(message.get("headers", ()))
        self.content_type = headers.get(b"content-type", self.content_type.encode()).decode()
        self.body += message.get("body", b"")

    async def run(self) -> "Exchange":
        await self._app(self._scope, self.receive, self.send)
        return self

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path)
    made.views[A] = view(A, "a")
    made.views[B] = view(B, "b", declared=False, parent=attempts.AttemptRef(A, 1, 1))
    return made


@pytest.fixture
def outputs() -> Outputs:
    return Outputs()


@pytest.fixture
def app(journal: Journal, outputs: Outputs) -> task_api.Api:
    return task_api.Api(
        journal,
        Rights(),
        Clusters(),
        jobs=Jobs(),
        outputs=outputs,
        flows=Flows(),
        ponds=pond_api.Ponds(
            ledger.Ledger(clock.ManualClock()), Rights(), time=clock.ManualClock()
        ),
        channel="/run/channel.sock",
        blobs=journal.directory / "blobs",
        worker_dir="/work",
        time=clock.ManualClock(),
    )


TASKS = "/v1/namespaces/default/tasks"


async def test_attempt_that_never_existed_is_refused(app: task_api.Api, journal: Journal) -> None:
    journal.change(B, state=task_state.SUCCESS)
    beyond = await Exchange(app, f"{TASKS}/b/logs?attempt=9").run()
    assert (beyond.status, "the task had 1" in beyond.json()["detail"]) == (400, True)
    assert (await Exchange(app, f"{TASKS}/b/logs?attempt=1").run()).status == 200


async def test_task_is_found_by_name_and_id(app: task_api.Api) -> None:
    by_name = (await Exchange(app, f"{TASKS}/b").run()).json()
    by_id = (await Exchange(app, f"{TASKS}/{ids.task_text(B)}").run()).json()
    assert by_name == by_id
    assert by_name["parent"] == f"{ids.task_text(A)}/1/1"
    assert by_name["state"] == "Running"


async def test_task_is_found_by_end_of_id(app: task_api.Api) -> None:
    found = await Exchange(app, f"{TASKS}/0000000b").run()
    assert (found.status, found.json()["name"]) == (200, "b")
    upper = await Exchange(app, f"{TASKS}/8000-00000000000B").run()
    assert upper.json()["name"] == "b"
    parent = (await Exchange(app, f"{TASKS}?parent=00000a").run()).status
    assert parent == 200


async def test_name_takes_precedence_over_end_of_id(app: task_api.Api, journal: Journal) -> None:
    journal.change(A, name="0000000b")
    assert (await Exchange(app, f"{TASKS}/0000000b").run()).json()["id"] == ids.task_text(A)


async def test_ambiguous_end_of_id_lists_the_tasks(app: task_api.Api, journal: Journal) -> None:
    other = ids.task_id("00000000-0000-7000-8000-00000a00000a")
    journal.views[other] = view(other, "c")
    done = await Exchange(app, f"{TASKS}/00000a").run()
    assert done.status == 409
    detail = done.json()["detail"]
    assert ids.task_text(A) in detail
    assert ids.task_text(other) in detail
    assert (await Exchange(app, f"{TASKS}/a00000a").run()).json()["name"] == "c"


async def test_end_of_id_needs_right_to_list(app: task_api.Api) -> None:
    assert (await Exchange(app, f"{TASKS}/0000000b/logs", user="reader").run()).status == 403
    assert (await Exchange(app, f"{TASKS}/b/logs", user="reader").run()).status == 200
    assert (await Exchange(app, f"{TASKS}/dddddddd/logs", user="reader").run()).status == 404


async def test_list_of_all_namespaces_needs_right(app: task_api.Api, journal: Journal) -> None:
    far = ids.task_id("00000000-0000-7000-8000-00000000000c")
    journal.views[far] = view(far, "c", namespace="far")
    found = (await Exchange(app, "/v1/tasks").run()).json()["items"]
    assert [(one["namespace"], one["name"]) for one in found] == [
        ("far", "c"), ("default", "b"), ("default", "a"),
    ]  # fmt: skip
    assert (await Exchange(app, "/v1/tasks", user="guest").run()).status == 403
    assert (await Exchange(app, "/v1/tasks?parent=a").run()).status == 400


async def test_parents_outside_the_page_are_named(app: task_api.Api, journal: Journal) -> None:
    journal.change(A, function="pkg:total")
    [item] = (await Exchange(app, f"{TASKS}?limit=1").run()).json()["items"]
    assert (item["parentName"], item["parentFunction"]) == ("a", "pkg:total")
    del journal.views[A]
    [item] = (await Exchange(app, f"{TASKS}?limit=1").run()).json()["items"]
    assert "parentName" not in item


async def test_task_of_another_namespace_is_not_found(app: task_api.Api) -> None:
    other = f"/v1/namespaces/other/tasks/{ids.task_text(A)}"
    assert (await Exchange(app, other).run()).status == 404


async def test_json_results_are_shown(app: task_api.Api, journal: Journal) -> None:
    payload = attempts.Payload("application/json", b'{"n":  1}')
    journal.change(A, state=task.State.SUCCESS, result=payload)
    found = (await Exchange(app, f"{TASKS}/a").run()).json()
    assert found["result"] == {"mediaType": "application/json", "sizeBytes": 9, "value": {"n": 1}}


async def test_tasks_are_counted_by_function_and_state(app: task_api.Api) -> None:
    for path in ("/v1/namespaces/default/task-counts", "/v1/task-counts"):
        found = (await Exchange(app, path).run()).json()
        assert found["states"] == {"Running": 3, "Failed": 3}
        assert found["items"][1] == {
            "namespace": "default", "function": "m:f", "declared": False, "state": "Failed",
            "number": 2,
        }  # fmt: skip
    assert (await Exchange(app, "/v1/task-counts", user="guest").run()).status == 403


async def test_prune_reports_deleted_tasks(app: task_api.Api, journal: Journal) -> None:
    path = "/v1/namespaces/default/prune?olderThan=60&keep=5&dryRun=true"
    found = (await Exchange(app, path, method="POST").run()).json()
    assert found == {"tasks": 3, "sizeBytes": 1 << 20, "laterBytes": 0, "dryRun": True}
    asked = model.Pruning(older_s=60, namespace="default", keep=5)
    assert journal.pruned == (asked, True)
    assert (await Exchange(app, "/v1/prune").run()).status == 405
    assert (await Exchange(app, "/v1/prune", method="POST", user="guest").run()).status == 403


async def test_only_finished_task_is_deleted(app: task_api.Api, journal: Journal) -> None:
    assert (await Exchange(app, f"{TASKS}/a", method="DELETE").run()).status == 409
    journal.change(A, state=task_state.SUCCESS)
    assert (await Exchange(app, f"{TASKS}/a", method="DELETE").run()).status == 200
    assert A not in journal.views


async def test_task_list_is_paged(app: task_api.Api) -> None:
    first = (await Exchange(app, f"{TASKS}?limit=1").run()).json()
    assert [item["name"] for item in first["items"]] == ["b"]
    rest = (await Exchange(app, f"{TASKS}?continue={first['continue']}").run()).json()
    assert [item["name"] for item in rest["items"]] == ["a"]
    assert "continue" not in rest


async def test_list_filters_are_passed_to_journal(app: task_api.Api, journal: Journal) -> None:
    query = "state=Failed&declared=false&parent=a&function=pkg.mod:fn"
    assert (await Exchange(app, f"{TASKS}?{query}").run()).status == 200
    assert journal.wanted == model.TaskQuery(
        state=task.State.FAILED, declared=False, parent=A, function="pkg.mod:fn"
    )
    assert (await Exchange(app, TASKS).run()).status == 200
    assert journal.wanted == model.TaskQuery()


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        (f"{TASKS}?state=Nope", "GET", 400, "known states are Pending"),
        (f"{TASKS}?limit=0", "GET", 400, "a number from 1 to 1000"),
        (f"{TASKS}?continue=x", "GET", 400, "a number from 1"),
        (f"{TASKS}/a/logs?follow=perhaps", "GET", 400, "write true or false"),
        (f"{TASKS}?parent=gone", "GET", 404, 'no task \\"gone\\"'),
        (f"{TASKS}/a/retry", "POST", 409, "raise its spec.run"),
        (f"{TASKS}/b/retry", "GET", 405, ""),
        ("/v1/namespaces/default/clusters", "POST", 405, ""),
        (f"{TASKS}/gone", "GET", 404, 'no task \\"gone\\"'),
        (f"{TASKS}/a/nonsense", "GET", 404, "it has result, logs, why, cancel, suspend"),
        (f"{TASKS}/a/cancel", "GET", 405, ""),
        (TASKS, "POST", 405, ""),
        ("/v1/nothing", "GET", 404, "try /v1/namespaces/default/tasks"),
    ],
)
async def test_errors_are_problem_details(
    app: task_api.Api, path: str, method: str, status: int, words: str
) -> None:
    done = await Exchange(app, path, method=method).run()
    assert done.status == status
    assert words in done.body.decode()
    assert done.json()["message"] == done.json()["detail"]


async def test_requests_without_user_or_rights_are_refused(
    app: task_api.Api, journal: Journal
) -> None:
    assert (await Exchange(app, TASKS, user=None).run()).status == 401
    refused = await Exchange(app, f"{TASKS}/a", user="reader").run()
    assert (refused.status, refused.json()["message"]) == (403, "reader cannot get tasks")
    journal.log_file(A, run=1, attempt=1).write_bytes(b"x\n")
    assert (await Exchange(app, f"{TASKS}/a/logs", user="reader").run()).body == b"x\n"
    stopping = await Exchange(app, f"{TASKS}/a/cancel", method="POST", user="reader").run()
    assert stopping.status == 403


async def test_cancel_kills_the_task(app: task_api.Api) -> None:
    done = await Exchange(app, f"{TASKS}/a/cancel", method="POST").run()
    assert (done.status, done.json()["state"]) == (202, "Killing")


async def test_suspend_and_resume_change_the_task(app: task_api.Api, journal: Journal) -> None:
    for sub, suspended in (("suspend", True), ("resume", False)):
        done = await Exchange(app, f"{TASKS}/b/{sub}", method="POST").run()
        assert (done.status, journal.views[B].suspended) == (202, suspended)
    refused = await Exchange(app, f"{TASKS}/a/suspend", method="POST").run()
    assert (refused.status, "spec.suspend" in refused.body.decode()) == (409, True)


async def test_retry_starts_new_run(app: task_api.Api, journal: Journal) -> None:
    journal.change(B, state=task_state.FAILED)
    done = await Exchange(app, f"{TASKS}/b/retry", method="POST").run()
    assert (done.status, done.json()["state"], done.json()["run"]) == (202, "Pending", 2)


async def test_retry_failed_reports_all_restarted_tasks(
    app: task_api.Api, journal: Journal
) -> None:
    journal.change(B, state=task_state.FAILED)
    done = await Exchange(app, f"{TASKS}/b/retry?failed=true", method="POST").run()
    assert (done.status, done.json()["run"]) == (202, 2)
    assert done.json()["retried"] == {
        "tasks": [ids.task_text(B)], "objects": ["above"], "waiting": 2,
    }  # fmt: skip
    both = await Exchange(app, f"{TASKS}/b/retry?failed=true&force=true", method="POST").run()
    assert both.status == 422


async def test_succeeded_task_is_retried_only_with_force(
    app: task_api.Api, journal: Journal
) -> None:
    journal.change(B, state=task_state.SUCCESS)
    refused = await Exchange(app, f"{TASKS}/b/retry", method="POST").run()
    assert (refused.status, refused.json()["detail"]) == (409, "it has succeeded")
    forced = await Exchange(app, f"{TASKS}/b/retry?force", method="POST").run()
    assert forced.status == 202


async def test_python_error_is_shown_without_unpickling(
    app: task_api.Api, journal: Journal
) -> None:
    cause = attempts.ErrorInfo("m.Missing", "no file", "Traceback of the input")
    info = attempts.ErrorInfo("ValueError", "bad", "Traceback", b"never read", ("a note",), cause)
    payload = attempts.Payload(attempts.ERROR, msgspec.msgpack.encode(info))
    journal.change(B, state=task_state.FAILED, function="m:f", result=payload)
    shown = {
        "type": "ValueError",
        "text": "bad",
        "notes": ["a note"],
        "traceback": "Traceback",
        "cause": {"type": "m.Missing", "text": "no file", "traceback": "Traceback of the input"},
    }
    found = (await Exchange(app, f"{TASKS}/b").run()).json()
    assert (found["error"], found["function"], "result" in found) == (shown, "m:f", False)
    assert (await Exchange(app, f"{TASKS}/b/why").run()).json()["error"] == shown


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x93\x01\x02\x03"])
async def test_undecodable_error_is_left_out(
    app: task_api.Api, journal: Journal, data: bytes
) -> None:
    journal.change(B, state=task_state.FAILED, result=attempts.Payload(attempts.ERROR, data))
    assert "error" not in (await Exchange(app, f"{TASKS}/b").run()).json()


async def test_python_results_and_blobs_are_shown_by_size(
    app: task_api.Api, journal: Journal
) -> None:
    journal.change(B, result=attempts.Payload(attempts.PICKLE, b"\x80\x05N."))
    found = (await Exchange(app, f"{TASKS}/b").run()).json()
    assert found["result"] == {"mediaType": attempts.PICKLE, "sizeBytes": 4}
    journal.change(B, result=attempts.Payload(attempts.JSON, b"", bytes(32), 1 << 20))
    found = (await Exchange(app, f"{TASKS}/b").run()).json()
    assert found["result"] == {
        "mediaType": attempts.JSON,
        "sizeBytes": 1 << 20,
        "digest": f"sha256:{'00' * 32}",
    }


async def test_clusters_are_listed_for_users_who_may_submit(app: task_api.Api) -> None:
    path = "/v1/namespaces/default/clusters"
    found = (await Exchange(app, path, user="guest").run()).json()
    assert found["items"] == [{"name": "small", "workers": 1, "slots": 2, "busy": 1, "queued": 0}]
    secret = await Exchange(app, "/v1/namespaces/secret/clusters", user="guest").run()
    assert (secret.status, secret.json()["detail"]) == (403, "guest cannot create tasks in secret")


async def test_endpoints_need_an_authenticated_user(app: task_api.Api) -> None:
    found = (await Exchange(app, "/v1/endpoints", user="reader").run()).json()
    assert found["channel"] == {"unix": "/run/channel.sock"}
    assert found["workers"] == {"python": sys.executable, "directory": "/work"}
    assert (await Exchange(app, "/v1/endpoints", user=None).run()).status == 401


async def test_unknown_namespace_error_lists_usable_ones(app: task_api.Api) -> None:
    unknown = await Exchange(app, "/v1/namespaces/nope/clusters", user="guest").run()
    assert unknown.status == 404
    assert unknown.json()["detail"].endswith("those that you may use: default")


async def test_unknown_namespace_error_makes_few_reviews(
    app: task_api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each review may be a request to the API server, and every user can cause it."""
    monkeypatch.setattr(Clusters, "namespaces", lambda _: [f"ns{n}" for n in range(1000)])
    asked: list[ports.Question] = []

    async def refusal(_: Rights, user: Any, question: ports.Question) -> str | None:
        asked.append(question)
        return "no"

    monkeypatch.setattr(Rights, "refusal", refusal)
    unknown = await Exchange(app, "/v1/namespaces/nope/clusters", user="guest").run()
    assert unknown.json()["detail"].endswith("those that you may use: none, or others")
    assert len(asked) == task_api.MAX_NAMED


async def test_why_explains_state_of_task(app: task_api.Api) -> None:
    found = (await Exchange(app, f"{TASKS}/a/why").run()).json()
    assert found["why"].startswith("Task a runs for")


async def test_logs_of_newest_and_of_given_attempt(app: task_api.Api, journal: Journal) -> None:
    journal.change(A, attempt=2)
    journal.log_file(A, run=1, attempt=1).write_bytes(b"one\n")
    journal.log_file(A, run=1, attempt=2).write_bytes(b"two\nthree\n")
    assert (await Exchange(app, f"{TASKS}/a/logs").run()).body == b"two\nthree\n"
    assert (await Exchange(app, f"{TASKS}/a/logs?attempt=1").run()).body == b"one\n"
    assert (await Exchange(app, f"{TASKS}/a/logs?tail=1").run()).body == b"three\n"


async def test_followed_logs_continue_across_attempts(app: task_api.Api, journal: Journal) -> None:
    one = journal.log_file(A, run=1, attempt=1)
    two = journal.log_file(A, run=1, attempt=2)

    async def story() -> AsyncIterator[None]:
        one.write_bytes(b"one\n")
        yield
        journal.change(A, attempt=2)
        yield
        two.write_bytes(b"two\n")
        journal.change(A, state=task.State.SUCCESS)
        yield

    exchange = Exchange(app, f"{TASKS}/a/logs?follow=true")
    exchange.polls = story()
    assert (await exchange.run()).body == b"one\ntwo\n"


async def test_output_of_external_attempt_is_fetched_first(
    app: task_api.Api, journal: Journal, outputs: Outputs
) -> None:
    log = journal.log_file(A, run=1, attempt=1)

    def write() -> None:
        log.write_bytes(b"new\n")

    outputs.brings[attempts.AttemptRef(A, 1, 1)] = write
    assert (await Exchange(app, f"{TASKS}/a/logs").run()).body == b"new\n"


async def test_unreadable_output_is_reported_with_cause(
    app: task_api.Api, outputs: Outputs
) -> None:
    def fail() -> None:
        raise errors.NoOutput("cannot read what it prints: the node is away")

    outputs.brings[attempts.AttemptRef(A, 1, 1)] = fail
    response = await Exchange(app, f"{TASKS}/a/logs?follow=true").run()
    assert (response.status, response.json()["detail"]) == (
        503, "cannot read what it prints: the node is away",
    )  # fmt: skip


async def test_output_is_fetched_while_attempt_is_followed(
    app: task_api.Api, journal: Journal, outputs: Outputs
) -> None:
    one, two = (attempts.AttemptRef(A, 1, number) for number in (1, 2))
    seen = []

    async def story() -> AsyncIterator[None]:
        seen.append(list(outputs.followed))
        yield
        journal.change(A, attempt=2)
        yield
        seen.append(list(outputs.followed))
        journal.change(A, state=task.State.SUCCESS)
        yield

    exchange = Exchange(app, f"{TASKS}/a/logs?follow=true")
    exchange.polls = story()
    await exchange.run()
    assert (seen, outputs.followed) == ([[one], [two]], [])


async def test_disconnected_follower_is_released(app: task_api.Api, journal: Journal) -> None:
    journal.log_file(A, run=1, attempt=1).write_bytes(b"one\n")
    exchange = await Exchange(app, f"{TASKS}/a/logs?follow=true").run()
    assert exchange.body == b"one\n"


INDEXES = "/v1/namespaces/default/jobs/five/indexes"


async def test_indexes_are_paged(app: task_api.Api) -> None:
    first = (await Exchange(app, f"{INDEXES}?limit=2").run()).json()
    assert [item["number"] for item in first["items"]] == [0, 1]
    rest = (await Exchange(app, f"{INDEXES}?limit=3&after={first['after']}").run()).json()
    assert [item["number"] for item in rest["items"]] == [2, 3, 4]
    assert "after" not in rest


async def test_indexes_are_filtered_by_state(app: task_api.Api) -> None:
    found = (await Exchange(app, f"{INDEXES}?state=Failed").run()).json()
    assert [item["number"] for item in found["items"]] == [1, 3]
    assert found["items"][0] == {
        "number": 1, "label": "key-1", "state": "Failed", "task": ids.task_text(A),
        "name": "five-1", "run": 1, "attempt": 1, "message": "exit code 1",
        "startTime": "2023-11-14T22:13:20.500000Z",
    }  # fmt: skip
    wrong = await Exchange(app, f"{INDEXES}?state=Broken").run()
    assert (wrong.status, "Succeeded" in wrong.json()["detail"]) == (400, True)


async def test_job_unknown_to_engine_has_no_indexes(app: task_api.Api) -> None:
    path = "/v1/namespaces/default/jobs/new/indexes"
    assert (await Exchange(app, path).run()).json() == {"items": []}


async def test_indexes_of_missing_job_are_not_found(app: task_api.Api) -> None:
    assert (await Exchange(app, "/v1/namespaces/default/jobs/x/indexes").run()).status == 404
    assert (await Exchange(app, INDEXES, method="POST").run()).status == 405
    assert (await Exchange(app, f"{INDEXES}?after=-1").run()).status == 400


async def test_indexes_need_right_to_get_the_job(app: task_api.Api) -> None:
    other = "/v1/namespaces/other/jobs/five/indexes"
    assert (await Exchange(app, other, user="guest").run()).status == 403
    assert (await Exchange(app, INDEXES, user="reader").run()).status == 403


STEPS = "/v1/namespaces/default/syncsets/risk/steps"


async def test_steps_are_paged(app: task_api.Api) -> None:
    first = (await Exchange(app, f"{STEPS}?limit=2").run()).json()
    assert [one["key"] for one in first["items"]] == ["price[0]", "price[1]"]
    assert first["items"][0]["task"] == "t0"
    rest = (await Exchange(app, f"{STEPS}?limit=2&after={first['after']}").run()).json()
    assert [one["key"] for one in rest["items"]] == ["price[2]"]
    assert "after" not in rest


async def test_steps_are_filtered_by_state_and_step(app: task_api.Api) -> None:
    assert (await Exchange(app, f"{STEPS}?state=Failed").run()).json() == {"items": []}
    assert (await Exchange(app, f"{STEPS}?step=total").run()).json() == {"items": []}
    refused = await Exchange(app, f"{STEPS}?state=Odd").run()
    assert refused.status == 400


async def test_steps_of_deleted_generation_are_empty(app: task_api.Api) -> None:
    assert (await Exchange(app, f"{STEPS}?generation=1").run()).json() == {"items": []}


async def test_steps_of_missing_set_are_not_found(app: task_api.Api) -> None:
    other = STEPS.replace("risk", "other")
    assert (await Exchange(app, other).run()).status == 404


async def test_steps_need_right_to_get_the_set(app: task_api.Api) -> None:
    refused = await Exchange(app, STEPS.replace("default", "secret"), user="guest").run()
    assert refused.status == 403


OPTIONS = "/v1/namespaces/default/jobconfigs/good/options"


async def test_options_of_jobconfig_are_a_json_schema(app: task_api.Api) -> None:
    found = await Exchange(app, OPTIONS).run()
    assert found.status == 200
    assert found.content_type == "application/schema+json"
    assert found.json()["properties"]["day"]["minimum"] == 1


async def test_invalid_or_missing_options_are_refused(app: task_api.Api) -> None:
    bad = await Exchange(app, "/v1/namespaces/default/jobconfigs/bad/options").run()
    assert bad.status == 409
    assert "spec.option.options[0].string" in bad.body.decode()
    missing = await Exchange(app, "/v1/namespaces/default/jobconfigs/x/options").run()
    assert missing.status == 404


async def test_options_need_right_to_get_the_jobconfig(app: task_api.Api) -> None:
    assert (await Exchange(app, OPTIONS, user="reader").run()).status == 403
    assert (await Exchange(app, OPTIONS, method="POST").run()).status == 405


SET_RESULT = "/v1/namespaces/default/syncsets/risk/result"


async def test_long_flow_result_is_sent_completely(app: task_api.Api) -> None:
    exchange = await Exchange(app, SET_RESULT).run()
    assert (exchange.status, exchange.json()) == (200, {"total": [7] * 5000})


async def test_flow_without_result_reports_reason(app: task_api.Api) -> None:
    failed = await Exchange(app, f"{SET_RESULT}?generation=1").run()
    assert (failed.status, b"its flow is Failed" in failed.body) == (404, True)
    gone = await Exchange(app, f"{SET_RESULT}?generation=3").run()
    assert (gone.status, b"is not kept any more" in gone.body) == (404, True)
    other = SET_RESULT.replace("default", "secret")
    assert (await Exchange(app, other, user="guest").run()).status == 403
