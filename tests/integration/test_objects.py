"""Tasks that are objects: kinds that are created and deleted, refusals, rights, results."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import api_resources, meta, object_task
from kilnwork.api import task as api_task
from kilnwork.data import local_blobs
from kilnwork.dispatch import model
from kilnwork.executors.custom_resource import executor, template
from kilnwork.kit import ids
from kilnwork.kube import client, errors
from support import embedded_server, executor_world, object_subject, short_paths, waiting

NS = object_subject.NS
BOOKS = object_subject.BOOKS
PHASE = '.status.phase == "Succeeded"'


class Setting:
    """A control plane, a manager of executor `customResource`, and a client."""

    def __init__(
        self,
        world: executor_world.World,
        subject: object_subject.ObjectSubject,
        admin: client.Client,
    ) -> None:
        self.world = world
        self.subject = subject
        self.accounts = subject.accounts
        self.admin = admin

    async def submit(self, manifest: Any, *, inputs: Any = None, **more: Any) -> ids.TaskId:
        """Submit a task that creates this object."""
        result = more.pop("result", object_subject.RESULT)
        names = inputs or {}
        more["inputs"] = tuple(api_task.TaskInput(name=name, object=name) for name in names)
        given = object_task.CustomResource(
            manifest=manifest, result=result, service_account_name=more.pop("account", "")
        )
        more.setdefault("timeouts", api_task.Timeouts(kill_grace_seconds=1))
        more.setdefault("retry", api_task.Retry(delay_seconds=0.05))
        submission = model.Submission(
            task=ids.new_task_id(),
            namespace=NS,
            name="t1",
            spec=api_task.TaskSpec(custom_resource=given, **more),
            inputs=None if inputs is None else msgspec.json.encode(inputs),
            declared=False,
        )
        await self.world.hub.submit(submission)
        return submission.task

    async def only_book(self) -> dict[str, Any]:
        """Wait for a Book and return it; there must be only one."""

        async def look() -> list[Any]:
            return list((await self.admin.list(BOOKS, NS, type=dict)).items)

        [book] = await waiting.wait_until_async(look, what="a Book exists")
        return dict(book)

    async def explains(self, task: ids.TaskId, text: str) -> None:
        """Wait for a message of the task."""
        await waiting.wait_until_async(
            lambda: text in self.world.view(task).message, what=f"the message has {text!r}"
        )

    async def say(self, book: dict[str, Any], **status: Any) -> None:
        """Write the status of a Book as its controller would."""
        name = book["metadata"]["name"]
        await self.admin.merge_patch(BOOKS, name, {"status": status}, NS, subresource="status")


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Setting]:
    """Run a setting in which Books are not served yet."""
    directory = short_paths.directory()
    async with embedded_server.admin_beside_node(directory) as admin:
        subject = object_subject.ObjectSubject(admin)
        async with executor_world.running(directory, subject) as world:
            yield Setting(world, subject, admin)


@pytest.fixture
async def bare() -> AsyncIterator[Setting]:
    async with running() as setting:
        yield setting


@pytest.fixture
async def setting(bare: Setting) -> Setting:
    await object_subject.define(bare.admin)
    return bare


async def test_task_waits_for_a_missing_kind(bare: Setting) -> None:
    task = await bare.submit(object_subject.book("exit 0"))
    view = await bare.world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    assert "no kind Book in my.custom.domain/v1alpha1" in view.message
    await object_subject.define(bare.admin)
    async with object_subject.running_printer(bare.admin):
        view = await bare.world.wait_for_state(task, "Success", "Succeeded")
    assert (view.attempt, view.losses) == (1, 0)


async def test_kind_may_be_deleted_and_created_again(setting: Setting) -> None:
    async with object_subject.running_printer(setting.admin):
        task = await setting.submit(object_subject.book("sleep 300"))
        await setting.world.wait_for_state(task, "Running")
        await setting.admin.delete(api_resources.CUSTOM_RESOURCE_DEFINITIONS, BOOKS.qualified)
        view = await setting.world.wait_for_state(task, "Staging", "ExecutorUnavailable")
        assert (view.attempt, view.losses) == (2, 1)

        async def gone() -> bool:
            try:
                await setting.admin.get(api_resources.CUSTOM_RESOURCE_DEFINITIONS, BOOKS.qualified)
            except errors.NotFound:
                return True
            return False

        await waiting.wait_until_async(gone, what="Books are gone")
    await object_subject.define(setting.admin)
    await setting.world.wait_for_state(task, "Staging", "Starting")
    await setting.say(await setting.only_book(), phase="Succeeded")
    view = await setting.world.wait_for_state(task, "Success", "Succeeded")
    assert (view.attempt, view.losses) == (2, 1)


async def test_kind_in_another_version_only_is_waited_for_and_killed_with_proof(
    setting: Setting,
) -> None:
    manifest = {**object_subject.book("exit 0"), "apiVersion": "my.custom.domain/v2"}
    task = await setting.submit(manifest)
    view = await setting.world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    assert "has kind Book in my.custom.domain/v1alpha1, and not in my.custom.domain/v2" in (
        view.message
    )
    await setting.world.kill(task)
    view = await setting.world.wait_for_state(task, "Killed", "Killed")
    assert view.stopped


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            "tasks may not make configmaps: start the manager with --allow-kind",
        ),
        (
            {"apiVersion": "v1", "kind": "Namespace"},
            "tasks may not make namespaces",
        ),
        (
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"},
            "tasks may not make clusterroles.rbac.authorization.k8s.io",
        ),
        (
            {"apiVersion": "other.domain/v1", "kind": "Thing"},
            "tasks may not make a kind of other.domain",
        ),
        (
            object_subject.book("exit 0", namespace="kube-system"),
            "metadata.namespace of its manifest is kube-system",
        ),
    ],
)
async def test_forbidden_object_fails_the_task_at_once(
    setting: Setting, manifest: Any, says: str
) -> None:
    task = await setting.submit(manifest, retry=api_task.Retry(max_attempts=5))
    view = await setting.world.wait_for_state(task, "Failed", "AdmissionError")
    assert says in view.message
    assert view.attempt == 1
    assert (await setting.admin.list(BOOKS, type=dict)).items == []


async def test_cluster_scoped_kind_is_refused_even_if_allowed(bare: Setting) -> None:
    definition = msgspec.json.decode(msgspec.json.encode(object_subject.DEFINITION))
    definition["spec"]["scope"] = "Cluster"
    await bare.admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
    task = await bare.submit(object_subject.book("exit 0"))
    view = await bare.world.wait_for_state(task, "Failed", "AdmissionError")
    assert "books.my.custom.domain belong to no namespace" in view.message


async def test_rejected_object_fails_the_task_with_the_servers_message(setting: Setting) -> None:
    manifest = object_subject.book("exit 0", labels={"no label": "x"})
    task = await setting.submit(manifest, retry=api_task.Retry(max_attempts=5))
    view = await setting.world.wait_for_state(task, "Failed", "AdmissionError")
    assert "metadata.labels" in view.message
    assert view.attempt == 1


async def test_variables_are_substituted_with_their_types(setting: Setting) -> None:
    manifest = """
        apiVersion: my.custom.domain/v1alpha1
        kind: Book
        metadata:
          name: google-sre-book
          labels: {try: "${task.attempt}"}
        spec:
          by: ${task.name} for ${HOME}
          chapters: ${task.inputs.count}
          value: ${task.inputs.count}
          title: "${task.inputs.title}"
    """
    title = 'a: "b"\n${task.name}'
    task = await setting.submit(
        manifest,
        inputs={"count": 3, "title": title},
    )
    book = await setting.only_book()
    assert book["spec"] == {"by": "t1 for ${HOME}", "chapters": 3, "value": 3, "title": title}
    assert book["metadata"]["labels"]["try"] == "1"
    assert book["metadata"]["name"] == f"google-sre-book-{task.hex()}-1-1"


async def test_status_of_an_older_generation_is_ignored(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"))
    book = await setting.only_book()
    await setting.say(book, phase="Succeeded", observedGeneration=0)
    await setting.explains(task, "waiting for generation 1 to be observed")
    await setting.say(book, observedGeneration=1)
    await setting.world.wait_for_state(task, "Success")


async def test_failure_has_the_message_of_the_object(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"))
    await setting.say(await setting.only_book(), phase="Failed", message="out of paper")
    view = await setting.world.wait_for_state(task, "Failed", "ObjectFailed")
    assert view.message.endswith(": out of paper")


WITH_RESULT = msgspec.structs.replace(object_subject.RESULT, json_path=".status.pages")


async def test_result_is_read_from_its_path(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"), result=WITH_RESULT)
    await setting.say(await setting.only_book(), phase="Succeeded", pages=[{"n": 1}])
    view = await setting.world.wait_for_state(task, "Success")
    assert view.result is not None
    assert view.result.data == b'[{"n":1}]'


async def test_missing_result_is_a_failure(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"), result=WITH_RESULT)
    await setting.say(await setting.only_book(), phase="Succeeded")
    view = await setting.world.wait_for_state(task, "Failed", "InvalidResult")
    assert "jsonPath .status.pages is nowhere in Book" in view.message


@pytest.mark.parametrize("kept", [True, False])
async def test_large_result_is_a_blob_if_there_is_a_store(
    setting: Setting, tmp_path: Path, *, kept: bool
) -> None:
    setting.subject.blobs = tmp_path if kept else None
    await setting.world.restart()
    task = await setting.submit(object_subject.book("exit 0"), result=WITH_RESULT)
    await setting.say(await setting.only_book(), phase="Succeeded", pages="x" * 100_000)
    if not kept:
        view = await setting.world.wait_for_state(task, "Failed", "ResultTooLarge")
        assert "its result has 100002 bytes" in view.message
        return
    view = await setting.world.wait_for_state(task, "Success")
    assert view.result is not None
    assert view.result.digest is not None
    found = local_blobs.Blobs(tmp_path / NS, durable=True).get(view.result.digest)
    assert bytes(found) == b'"' + b"x" * 100_000 + b'"'


async def test_held_object_is_killed_without_proof_until_released(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"))
    book = await setting.only_book()
    await setting.say(book, phase="Running")
    await setting.world.wait_for_state(task, "Running")
    await setting.world.kill(task)
    view = await setting.world.wait_for_state(task, "Killed", "Unconfirmed")
    assert view.stopped is False
    name = book["metadata"]["name"]
    left = (await setting.admin.get(BOOKS, name, NS))["metadata"]
    assert left["deletionTimestamp"]
    others = [one for one in left["finalizers"] if one != object_subject.PRINTER]
    await setting.admin.merge_patch(BOOKS, name, {"metadata": {"finalizers": others}}, NS)
    await waiting.wait_until_async(
        lambda: setting.world.view(task).stopped, what="it is proved to have stopped"
    )
    await setting.world.wait_until_clean()


async def test_observed_success_counts_after_deletion(
    setting: Setting,
) -> None:
    task = await setting.submit(object_subject.book("exit 0"))
    book = await setting.only_book()
    await setting.world.end()
    await setting.say(book, phase="Succeeded")
    await setting.admin.delete(BOOKS, book["metadata"]["name"], NS)
    await setting.world.start()
    await setting.world.wait_for_state(task, "Success")


async def test_failure_during_deletion_is_a_loss_after_finalizers(
    setting: Setting,
) -> None:
    retry = api_task.Retry(max_losses=0, delay_seconds=0.05)
    task = await setting.submit(object_subject.book("exit 0"), retry=retry)
    book = await setting.only_book()
    name = book["metadata"]["name"]
    await setting.say(book, phase="Running")
    await setting.world.wait_for_state(task, "Running")
    await setting.admin.delete(BOOKS, name, NS)
    await setting.explains(task, "is being deleted; it waits for my.custom.domain/printer")
    await setting.say(book, phase="Failed")
    await setting.admin.merge_patch(
        BOOKS, name, {"metadata": {"finalizers": [template.FINALIZER]}}, NS
    )
    view = await setting.world.wait_for_state(task, "Failed", "LostTooOften")
    assert view.failures == 0


async def test_task_with_an_account_has_only_its_rights(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"), account="author")
    view = await setting.world.wait_for_state(task, "Staging", "WaitingForServiceAccount")
    assert "ServiceAccount author does not exist" in view.message

    annotated = {executor.IMPERSONATE: "true"}
    metadata = meta.ObjectMeta(name="author", namespace=NS, annotations=annotated)
    setting.accounts.put(meta.Partial(metadata=metadata))
    view = await setting.world.wait_for_state(task, "Staging", "ExecutorUnavailable")
    assert 'User "system:serviceaccount:default:author" cannot create resource "books"' in (
        view.message
    )
    rule = {"apiGroups": [BOOKS.group], "resources": [BOOKS.plural], "verbs": ["create"]}
    role = {"metadata": {"name": "author"}, "rules": [rule]}
    await setting.admin.create(api_resources.ROLES, role, NS)
    binding = {
        "metadata": {"name": "author"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "author"},
        "subjects": [{"kind": "ServiceAccount", "name": "author", "namespace": NS}],
    }
    await setting.admin.create(api_resources.ROLE_BINDINGS, binding, NS)
    await setting.say(await setting.only_book(), phase="Succeeded")
    await setting.world.wait_for_state(task, "Success")


async def test_account_without_the_annotation_is_refused(setting: Setting) -> None:
    metadata = meta.ObjectMeta(name="author", namespace=NS)
    setting.accounts.put(meta.Partial(metadata=metadata))
    task = await setting.submit(object_subject.book("exit 0"), account="author")
    view = await setting.world.wait_for_state(task, "Failed", "AdmissionError")
    assert "has no annotation kilnwork.dev/impersonate" in view.message


async def test_labels_on_a_foreign_object_do_not_make_it_an_attempt(setting: Setting) -> None:
    """A user who may create Books cannot report for a task by setting labels."""
    task = await setting.submit(object_subject.book("exit 0"))
    real = await setting.only_book()
    forged = object_subject.book("exit 0", name="forged", labels=real["metadata"]["labels"])
    await setting.admin.create(BOOKS, forged, NS)
    await setting.say({"metadata": {"name": "forged"}}, phase="Succeeded")
    await setting.say(real, phase="Failed")
    view = await setting.world.wait_for_state(task, "Failed", "ObjectFailed")
    assert real["metadata"]["name"] in view.message


async def test_object_without_its_labels_is_still_found(setting: Setting) -> None:
    task = await setting.submit(object_subject.book("exit 0"))
    book = await setting.only_book()
    name = book["metadata"]["name"]
    await setting.admin.merge_patch(BOOKS, name, {"metadata": {"labels": None}}, NS)
    await setting.say(book, phase="Succeeded")
    view = await setting.world.wait_for_state(task, "Success", "Succeeded")
    assert (view.attempt, view.losses) == (1, 0)


async def test_unknown_fields_are_refused_and_not_dropped(bare: Setting) -> None:
    definition = msgspec.json.decode(msgspec.json.encode(object_subject.DEFINITION))
    fields = {"type": "object", "properties": {"script": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": fields}}
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    await bare.admin.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, definition)
    manifest = {**object_subject.book(""), "spec": {"scirpt": "exit 0"}}
    task = await bare.submit(manifest)
    view = await bare.world.wait_for_state(task, "Failed", "AdmissionError")
    assert 'unknown field "spec.scirpt"' in view.message
