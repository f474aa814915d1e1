"""Every field of a Pod, a Task and a TaskCluster behaves as the table of fields states.

One control plane for all tests. Most writes are dry runs, so that nothing has to run.
"""

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kilnwork.api import api_resources, field_support, kind_field_effects, kinds
from kilnwork.api.field_support import Effect, Side
from kilnwork.cli import embedded_crds
from kilnwork.controlplane import cluster
from kilnwork.controlplane.node import pod_field_effects, statuses
from kilnwork.kit import clock, http_types
from kilnwork.kube import client, errors, transport
from support import field_samples, short_paths, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")

NS = "default"


class World:
    """A control plane with a node, an administrator that keeps warnings, and another client."""

    def __init__(self) -> None:
        self.data = short_paths.directory()
        self.warnings: list[str] = []
        self.http: transport.Transport
        self.kube: client.Client

    async def write(
        self, kind: api_resources.Resource, obj: dict[str, Any], *, dry_run: bool = True
    ) -> str:
        """Create an object; return why it was refused, or "". Sets `warnings`."""
        self.warnings.clear()
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        request = http_types.ClientRequest(
            method="POST",
            path=kind.base(NS),
            query={"dryRun": "All"} if dry_run else {},
            body=msgspec.json.encode(body),
            timeout_s=60,
        )
        try:
            await self.http.send(request)
        except errors.KubeError as error:
            return str(error)
        return ""

    async def add(self, pod: str, *containers: dict[str, Any], dry_run: bool = True) -> str:
        """Add ephemeral containers; return why they were refused, or "". Sets `warnings`."""
        self.warnings.clear()
        request = http_types.ClientRequest(
            method="PATCH",
            path=f"{api_resources.PODS.base(NS)}/{pod}/ephemeralcontainers",
            query={"dryRun": "All"} if dry_run else {},
            body=msgspec.json.encode({"spec": {"ephemeralContainers": containers}}),
            content_type="application/strategic-merge-patch+json",
            timeout_s=60,
        )
        try:
            await self.http.send(request)
        except errors.KubeError as error:
            return str(error)
        return ""

    async def pod(self, name: str, spec: dict[str, Any]) -> None:
        refused = await self.write(
            api_resources.PODS, {"metadata": {"name": name}, "spec": spec}, dry_run=False
        )
        assert refused == ""

    async def status(self, name: str, *, has: str) -> dict[str, Any]:
        """Wait until the status of a Pod contains this text; return the status."""
        found: dict[str, Any] = {}

        async def reported() -> bool:
            nonlocal found
            found = (await self.kube.get(api_resources.PODS, name, NS))["status"]
            return has in str(found)

        await waiting.wait_until_async(reported, what=f"{name}: {has}", timeout_s=60)
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    made = World()
    settings = cluster.ControlPlaneSettings(
        data_dir=made.data,
        port=0,
        workdir=made.data,
        node_name="n1",
        installed=embedded_crds.EXTENSIONS,
    )
    plane = cluster.ControlPlane(settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, made.data)
        stack.push_async_callback(plane.stop)
        await plane.start()
        await plane.start_node()
        config = plane.admin_config()
        made.kube = await stack.enter_async_context(client.Client(config, user_agent="test"))
        made.http = await stack.enter_async_context(
            transport.Transport(
                config,
                user_agent="test",
                time=clock.SystemClock(),
                on_warning=made.warnings.append,
            )
        )
        yield made


def effect_of(path: str, rows: field_support.Table) -> Effect | None:
    row = field_support.row_for(rows, path)
    return None if row is None else row.embedded


def without_positions(path: str) -> str:
    """Return the path without positions in lists."""
    return re.sub(r"\[\d+\]", "[]", path)


def warned_of(warnings: list[str], path: str) -> list[str]:
    """Return the warnings about this field, or about one that contains it."""
    named = [(without_positions(text.partition(": ")[0]), text) for text in warnings]
    return [text for at, text in named if f"{path}.".startswith((f"{at}.", f"{at}[]."))]


async def deviation(world: World, path: str, effect: Effect | None, refused: str) -> str:
    """Return how the behaviour differs from the table, or ""."""
    warned = warned_of(world.warnings, path)
    if effect is Effect.INVALID:
        return "" if path.split("[]")[0] in refused else "not refused with its path"
    if refused:
        return f"refused: {refused}"
    if effect in (Effect.IGNORED, Effect.REFUSED):
        return "" if warned else "no warning"
    return f"warnings: {warned}" if warned else ""


async def test_every_field_of_a_pod_does_what_the_table_states(world: World) -> None:
    wrong = {}
    gate = {"schedulingGates": [{"name": "example.com/never"}]}
    volumes = {"volumes": [{**field_samples.VOLUME, "emptyDir": {}}]}
    await world.pod("grows", {**field_samples.POD, **gate, **volumes})
    for path in field_samples.pod_fields():
        effect = effect_of(path, pod_field_effects.TABLE)
        if effect is None:
            wrong[path] = "no row"
            continue
        if path.startswith(field_samples.EPHEMERAL):
            refused = await world.add("grows", field_samples.ephemeral_container(path))
        else:
            obj = {"metadata": {"name": "p"}, "spec": field_samples.pod_spec(path)}
            refused = await world.write(api_resources.PODS, obj)
        if problem := await deviation(world, path, effect, refused):
            wrong[path] = problem
    assert wrong == {}


@pytest.mark.parametrize("kind", kinds.OURS, ids=lambda kind: str(kind.kind))
async def test_every_field_of_our_kinds_does_what_the_table_states(
    world: World, kind: api_resources.Resource
) -> None:
    wrong = {}
    for path in field_samples.fields_of(kind):
        effect = effect_of(path, kind_field_effects.TABLES[kind.kind])
        if effect is None:
            wrong[path] = "no row"
            continue
        obj = {"metadata": {"name": "x"}, **field_samples.object_of(kind, path)}
        refused = await world.write(kind, obj)
        if problem := await deviation(world, path, effect, refused):
            wrong[path] = problem
    assert wrong == {}


async def test_tables_have_only_existing_fields() -> None:
    used = {_row(path) for path in field_samples.pod_fields()}
    assert [row.path for row in pod_field_effects.ROWS if row.path not in used] == []


async def test_taskcluster_warns_of_template_fields_that_it_replaces(world: World) -> None:
    worker = {"name": "worker", "image": "x", "command": ["mine"], "args": ["a"], "tty": True}
    worker["resources"] = {"limits": {"memory": "1Gi"}}  # which a worker keeps by itself
    template = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "side", "image": "x", "command": ["s"]}, worker],
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "dnsPolicy": "None",
        },
    }
    obj = {"metadata": {"name": "c"}, "spec": {"template": template}}
    assert await world.write(kinds.TASK_CLUSTERS, obj) == ""
    assert sorted(text.partition(": ")[0] for text in world.warnings) == [
        "spec.template.metadata.name",
        "spec.template.spec.containers[1].args",
        "spec.template.spec.containers[1].command",
        "spec.template.spec.dnsPolicy",
        "spec.template.spec.restartPolicy",
        "spec.template.spec.serviceAccountName",
    ]


async def test_fields_that_the_node_refuses_fail_the_pod_with_their_path(world: World) -> None:
    chosen = refused_fields(of_ephemeral=False)
    for number, path in enumerate(chosen.values()):
        await world.pod(f"refused-{number}", field_samples.pod_spec(path))
    for number, (row, _) in enumerate(chosen.items()):
        status = await world.status(f"refused-{number}", has=statuses.UNSUPPORTED)
        assert (status["phase"], status["reason"]) == ("Failed", statuses.UNSUPPORTED)
        assert without_positions(status["message"].partition(": ")[0]) == row


def refused_fields(*, of_ephemeral: bool) -> dict[str, str]:
    """Return one field for each row of what the node refuses."""
    rows = [row.path for row in pod_field_effects.ROWS if row.cluster is Effect.REFUSED]
    rows = [row for row in rows if row.startswith(field_samples.EPHEMERAL) is of_ephemeral]
    chosen = {_row(path): path for path in field_samples.pod_fields() if _row(path) in rows}
    assert sorted(chosen) == sorted(rows)
    return chosen


async def test_ephemeral_container_with_a_refused_field_waits(world: World) -> None:
    chosen = refused_fields(of_ephemeral=True)
    volumes = {"volumes": [{**field_samples.VOLUME, "emptyDir": {}}]}
    await world.pod("watched", {**shell("sleep 600"), **volumes})
    await world.status("watched", has="startedAt")
    for number, path in enumerate(chosen.values()):
        container = {**field_samples.ephemeral_container(path), "name": f"e{number}"}
        assert await world.add("watched", container, dry_run=False) == ""
    for number, row in enumerate(chosen):
        field = row.removeprefix(field_samples.EPHEMERAL)
        path = f"spec.ephemeralContainers[{number}]{field}"
        status = await world.status("watched", has=path)
        state = status["ephemeralContainerStatuses"][number]["state"]["waiting"]
        assert state["reason"] == "CreateContainerConfigError"
        assert state["message"].startswith(f"{path}: refused by nodes of kilnwork")
        assert status["phase"] == "Running"


async def test_event_names_fields_of_an_ephemeral_container_without_effect(
    world: World,
) -> None:
    await world.pod("looked-into", shell("sleep 600"))
    container = field_samples.ephemeral_container(f"{field_samples.EPHEMERAL}.name")
    container["securityContext"] = {"privileged": True}
    assert await world.add("looked-into", container, dry_run=False) == ""
    field = "spec.ephemeralContainers[0].securityContext.privileged: has no effect here"
    assert [text.partition(": a ")[0] for text in world.warnings] == [field]

    async def reported() -> bool:
        found = await world.kube.list(api_resources.EVENTS, NS, type=dict[str, Any])
        return any(e["message"].startswith(field) for e in found.items)

    await waiting.wait_until_async(reported, what="the event")


def _row(path: str) -> str:
    row = field_support.row_for(pod_field_effects.TABLE, path)
    return "" if row is None else row.path


async def test_condition_and_an_event_name_fields_without_effect_on_the_node(
    world: World,
) -> None:
    spec = {
        **field_samples.POD,
        "dnsPolicy": "None",
        "hostname": "other",
        "imagePullSecrets": [{"name": "x"}],
        "securityContext": {"fsGroup": 5, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    spec["containers"] = [
        {**spec["containers"][0], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    ]
    await world.pod("ignored", spec)
    status = await world.status("ignored", has=statuses.FIELDS_IGNORED)
    condition = next(c for c in status["conditions"] if c["type"] == statuses.FIELDS_IGNORED)
    paths = [text.partition(": ")[0] for text in condition["message"].split("; ")]
    assert sorted(paths) == [
        "spec.containers[0].resources.limits",
        "spec.dnsPolicy",
        "spec.hostname",
        "spec.imagePullSecrets",
        "spec.securityContext.fsGroup",
        "spec.securityContext.seccompProfile.type",
    ]
    assert condition["status"] == "True"

    async def reported() -> bool:
        found = await world.kube.list(api_resources.EVENTS, NS, type=dict[str, Any])
        return any(
            e["involvedObject"]["name"] == "ignored" and e["reason"] == "FieldsIgnored"
            for e in found.items
        )

    await waiting.wait_until_async(reported, what="the event")


async def test_plain_pod_has_no_condition_about_fields(world: World) -> None:
    await world.pod("plain", field_samples.POD)
    assert world.warnings == []
    status = await world.status("plain", has="Succeeded")
    assert statuses.FIELDS_IGNORED not in str(status)


async def test_tables_agree_on_the_fields_of_a_node() -> None:
    """The node is the same on both sides; only the scheduler and the API server differ."""
    for row in pod_field_effects.ROWS:
        if row.embedded is not row.cluster:
            allowed = (Effect.SCHEDULED, Effect.IGNORED)
            assert row.effect(Side.CLUSTER) in allowed, row.path


def shell(script: str, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "x", "command": ["sh", "-c", script], **container}
    return {**field_samples.POD, "containers": [main]}


async def test_privileges_are_dropped_in_the_container_and_in_exec(
    world: World,
) -> None:
    spec = shell(
        f"cp /proc/self/status {world.data}/own; until [ -s {world.data}/hook ]; do sleep .1; done",
        securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        lifecycle={
            "postStart": {
                "exec": {"command": ["sh", "-c", f"cat /proc/self/status > {world.data}/hook"]}
            }
        },
    )
    await world.pod("less", spec)
    await world.status("less", has="Succeeded")
    for name in ("own", "hook"):
        lines = (world.data / name).read_text().splitlines()
        facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert facts["NoNewPrivs"] == "1"
        if os.geteuid() == 0:  # without root there are no privileges to drop
            assert int(facts["CapBnd"], 16) == 0
        assert int(facts["CapEff"], 16) == 0


async def test_container_of_another_user_is_refused(world: World) -> None:
    mine, other = os.geteuid(), os.geteuid() + 1
    await world.pod("mine", {**field_samples.POD, "securityContext": {"runAsUser": mine}})
    await world.pod("other", shell("true", securityContext={"runAsUser": other}))
    await world.status("mine", has="Succeeded")
    status = await world.status("other", has="CreateContainerConfigError")
    waiting_for = status["containerStatuses"][0]["state"]["waiting"]["message"]
    assert waiting_for.startswith(f"spec.containers[0].securityContext.runAsUser: {other} is not")


@pytest.mark.skipif(os.geteuid() != 0, reason="only a node that runs as root must refuse")
async def test_run_as_non_root_refuses_root(world: World) -> None:
    await world.pod("careful", {**field_samples.POD, "securityContext": {"runAsNonRoot": True}})
    status = await world.status("careful", has="CreateContainerConfigError")
    state = status["containerStatuses"][0]["state"]["waiting"]
    assert state["message"].startswith("spec.securityContext.runAsNonRoot: container has run")


async def test_termination_message_falls_back_to_the_log(world: World) -> None:
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await world.pod("talks", shell("echo what went wrong; exit 3", **policy))
    status = await world.status("talks", has="Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "what went wrong\n")


async def test_node_taint_is_respected_and_evicts_pods(
    world: World,
) -> None:
    node = (await world.kube.list(api_resources.NODES, type=dict[str, Any])).items[0]["metadata"][
        "name"
    ]
    await world.pod("stays", {**shell("sleep 600"), "tolerations": [{"operator": "Exists"}]})
    await world.pod("goes", shell("sleep 600"))
    await world.status("goes", has="Running")
    await world.kube.merge_patch(
        api_resources.NODES, node, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
    )
    try:
        await world.pod("late", field_samples.POD)
        await world.status("late", has="1 node(s) had untolerated taint {a: }")

        async def gone() -> bool:
            try:
                await world.kube.get(api_resources.PODS, "goes", NS)
            except errors.NotFound:
                return True
            return False

        await waiting.wait_until_async(gone, what="the Pod is driven out", timeout_s=60)
        assert (await world.kube.get(api_resources.PODS, "stays", NS))["status"][
            "phase"
        ] == "Running"
    finally:
        await world.kube.merge_patch(api_resources.NODES, node, {"spec": {"taints": None}})
    await world.status("late", has="Succeeded")
