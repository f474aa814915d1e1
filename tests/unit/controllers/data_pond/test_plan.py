"""The plan for a DataPond: the Pods to create, their content, and the status."""

import base64
from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, meta, node, pod, pond_messages, reasons
from kilnwork.controllers import caches, worker_pods
from kilnwork.controllers.data_pond import (
    deletion_decision,
    ledger,
    plan,
    pods,
    status,
    tls_certificate,
)
from kilnwork.kit import clock

NOW = 1_800_000_000.0
LOCAL = pods.PondPodSettings(
    manager="http://127.0.0.1:7444",
    command=("python", "-m", "kilnwork.pond"),
    image="i",
    root="/home/me/ponds",
    local=True,
)
FAR = pods.PondPodSettings(
    manager="https://kilnwork.kilnwork-system.svc:7443",
    command=("python", "-m", "kilnwork.pond"),
    image="registry/kilnwork:1",
    ca=b"CA",
)
PAIR = tls_certificate.create(now=NOW)


def pond(name: str = "lake", **spec: Any) -> data_pond.DataPond:
    return data_pond.DataPond(
        metadata=meta.ObjectMeta(name=name, namespace="quant", uid="u1", generation=3),
        spec=data_pond.DataPondSpec(**spec),
    )


def a_node(name: str, *taints: tuple[str, str], **labels: str) -> node.Node:
    return node.Node(
        metadata=meta.ObjectMeta(name=name, labels=labels),
        spec=node.NodeSpec(taints=tuple(node.Taint(key=k, effect=e) for k, e in taints)),
    )


def secret(
    settings: pods.PondPodSettings = LOCAL, pair: tls_certificate.KeyPair = PAIR
) -> caches.Secret:
    body = pods.make_secret(pond(), settings, token="t", pair=pair)
    return caches.Secret(metadata=meta.ObjectMeta(name="lake-pond", uid="s1"), data=body["data"])


def seen(body: meta.JsonObject, **changes: Any) -> pod.Pod:
    metadata = {**body["metadata"], "uid": "p", "creationTimestamp": clock.rfc3339(NOW - 60)}
    document = {"metadata": metadata, "spec": {"nodeName": body["spec"]["nodeName"]}, **changes}
    return msgspec.convert(document, pod.Pod, strict=False)


def decide(settings: pods.PondPodSettings = LOCAL, **facts: Any) -> plan.Plan:
    facts.setdefault("pond", pond())
    facts.setdefault("secret", secret(settings))
    return plan.decide(plan.Facts(now=NOW, **facts), settings)


def test_secret_is_created_before_pods() -> None:
    decided = decide(secret=None, nodes=[a_node("n1")])

    assert decided.make_secret
    assert decided.create == ()


def test_each_selected_node_gets_a_pod() -> None:
    nodes = [a_node("n1", disk="fast"), a_node("n2"), a_node("n3", disk="fast")]

    decided = decide(pond=pond(node_selector={"disk": "fast"}), nodes=nodes)

    assert [body["spec"]["nodeName"] for body in decided.create] == ["n1", "n3"]
    assert decided.nodes == {"n1", "n3"}


@pytest.mark.parametrize(
    ("key", "effect", "comes"),
    [
        ("dedicated", "NoSchedule", False),
        ("dedicated", "NoExecute", False),
        ("dedicated", "PreferNoSchedule", True),
        ("node.kubernetes.io/unreachable", "NoExecute", True),
        ("node.kubernetes.io/unschedulable", "NoSchedule", True),
    ],
)
def test_taints_are_tolerated_like_by_a_daemon_set(
    key: str,
    effect: str,
    comes: bool,  # noqa: FBT001 - a parameter
) -> None:
    decided = decide(nodes=[a_node("n1", (key, effect))])

    assert bool(decided.create) is comes


def test_second_pass_creates_nothing() -> None:
    first = decide(nodes=[a_node("n1")])

    again = decide(nodes=[a_node("n1")], pods=[seen(first.create[0])])

    assert (again.create, again.remove, again.mend_secret) == ((), (), {})


def test_pods_on_unselected_nodes_are_deleted() -> None:
    [body] = decide(nodes=[a_node("n1")]).create

    decided = decide(nodes=[], pods=[seen(body)])

    assert [(one.metadata.name, why) for one, why in decided.remove] == [
        ("lake-n1", "its node is not selected, or gone")
    ]


def test_pods_of_an_older_spec_are_replaced() -> None:
    [body] = decide(nodes=[a_node("n1")]).create

    decided = decide(pond=pond(path="/data/pond"), nodes=[a_node("n1")], pods=[seen(body)])

    assert [why for _, why in decided.remove] == ["it is made of an older spec"]


def test_changes_sent_by_order_do_not_replace_pods() -> None:
    web = data_pond.PondSource(name="web", uri="https://x/")
    [body] = decide(nodes=[a_node("n1")]).create

    decided = decide(
        pond=pond(capacity="1Gi", sources=(web,)), nodes=[a_node("n1")], pods=[seen(body)]
    )

    assert decided.remove == ()


def test_a_pod_that_has_ended_is_replaced() -> None:
    [body] = decide(nodes=[a_node("n1")]).create

    decided = decide(nodes=[a_node("n1")], pods=[seen(body, status={"phase": "Failed"})])

    assert [why for _, why in decided.remove] == ["it has ended"]


def test_new_ca_of_the_manager_is_written_to_the_secret() -> None:
    decided = decide(FAR, secret=secret(LOCAL))

    assert decided.mend_secret == {"ca.crt": base64.b64encode(b"CA").decode()}


def test_a_certificate_is_renewed_in_time() -> None:
    old = tls_certificate.create(
        now=NOW - (tls_certificate.DAYS - tls_certificate.RENEW_DAYS + 1) * 86_400
    )

    assert decide(secret=secret(pair=old)).new_pair
    assert not decide().new_pair


# Pods


def test_pod_on_this_machine_runs_as_the_current_user() -> None:
    [body] = decide(nodes=[a_node("n1")]).create
    [container] = body["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}

    assert "securityContext" not in container
    assert env["KILN_MANAGER"] == "http://127.0.0.1:7444"
    assert env["KILN_POND_PATH"] == "/home/me/ponds/quant/lake"
    assert "KILN_CA_FILE" not in env


def test_a_pod_in_a_cluster_has_no_rights_but_its_files() -> None:
    [body] = decide(FAR, nodes=[a_node("n1")]).create
    spec = body["spec"]
    [container] = spec["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}

    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert env["KILN_POND_PATH"] == "/var/lib/kilnwork/ponds/quant/lake"
    assert env["KILN_CA_FILE"].endswith("/ca.crt")
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_secrets_are_mounted_but_not_in_the_environment() -> None:
    sources = (
        data_pond.PondSource(name="web", uri="https://x/", secret_name="web-token"),
        data_pond.PondSource(name="disk", uri="file:///data/a%20b"),
    )

    [body] = decide(FAR, pond=pond(sources=sources), nodes=[a_node("n1")]).create

    [container] = body["spec"]["containers"]
    mounts = {one["name"]: one for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in body["spec"]["volumes"]}
    assert volumes["secret-0"]["secret"]["secretName"] == "web-token"
    assert mounts["secret-0"]["mountPath"].endswith("/sources/web")
    assert volumes["files-1"]["hostPath"] == {"path": "/data/a b"}
    assert mounts["files-1"] == {
        "name": "files-1",
        "mountPath": "/data/a b",
        "readOnly": True,
    }
    assert "web-token" not in str(container["env"])


def test_mounted_source_is_not_mounted_twice() -> None:
    sources = (
        data_pond.PondSource(name="a", uri="file:///data"),
        data_pond.PondSource(name="b", uri="file:///data/b"),
    )

    [body] = decide(pond=pond(sources=sources), nodes=[a_node("n1")]).create

    paths = [one["mountPath"] for one in body["spec"]["containers"][0]["volumeMounts"]]
    assert paths.count("/data") == 1
    assert "/data/b" not in paths


@pytest.mark.parametrize(
    ("name", "host"),
    [("lake", "n1"), ("l" * 250, "n1"), ("a.b", "node.example.org"), ("x" * 60, "y" * 60)],
)
def test_names_of_pods_are_host_names(name: str, host: str) -> None:
    made = pods.pod_name(name, host)

    assert len(made) <= 63
    assert "." not in made
    assert made == pods.pod_name(name, host)


def test_names_of_pods_differ() -> None:
    assert pods.pod_name("a-b", "c" * 60) != pods.pod_name("a", "b-" + "c" * 60)


# status


def known(**facts: Any) -> ledger.Ledger:
    made = ledger.Ledger(clock.ManualClock())
    made.pond_changed("quant", "lake", data_pond.DataPondSpec(), root="/p")
    made.take_report("quant", "lake", "n1", pond_messages.Report(session="s", sequence=1, **facts))
    return made


def condition(decided: plan.Plan, kind: str) -> tuple[str, str, str]:
    [found] = [one for one in decided.status.conditions if one.type == kind]
    return found.status, found.reason, found.message


def test_a_pond_is_ready_when_every_node_reports() -> None:
    state = known(used=5, capacity=10).state("quant", "lake")

    ready = decide(nodes=[a_node("n1")], known=state)
    waits = decide(nodes=[a_node("n1"), a_node("n2")], known=state)

    assert condition(ready, "Ready")[:2] == ("True", "AgentsReady")
    assert (ready.status.bytes.used, ready.status.bytes.capacity) == (5, 10)
    assert condition(waits, "Ready") == (
        "False",
        "AgentsStarting",
        "no agent on node n2 has reported yet",
    )
    assert waits.status.nodes == data_pond.PondNodes(ready=1, total=2)
    assert waits.status.observed_generation == 3


def test_pond_without_nodes_reports_it() -> None:
    assert condition(decide(), "Ready")[:2] == ("False", "NoNodes")


def test_manager_without_rights_for_nodes_reports_the_remedy() -> None:
    blind = msgspec.structs.replace(LOCAL, sees_nodes=False)
    decided = decide(blind, nodes=[])
    status, reason, message = condition(decided, "Ready")
    assert (status, reason) == ("False", "NotInstalled")
    assert "`kiln install --ponds`" in message
    assert not decided.create


def test_unusable_directory_is_reported() -> None:
    trouble = pond_messages.PondTrouble(reason="PondInUse", message="it belongs to process 7")
    state = known(trouble=trouble).state("quant", "lake")

    found = condition(decide(nodes=[a_node("n1")], known=state), "Ready")

    assert found == ("False", "PondUnusable", "node n1: it belongs to process 7")


def test_full_pond_reports_the_node() -> None:
    trouble = pond_messages.PondTrouble(reason="PondFull", message="no room")
    state = known(pins=(pond_messages.PinReport(id="r", trouble=trouble),)).state("quant", "lake")

    found = condition(decide(nodes=[a_node("n1")], known=state), "Full")

    assert found == ("True", "PondFull", "node n1: no room")


def test_invalid_spec_creates_nothing() -> None:
    decided = decide(pond=pond(capacity="lots"), nodes=[a_node("n1")])

    assert decided.create == ()
    assert condition(decided, "Ready")[1] == "InvalidSpec"
    assert "spec.capacity" in condition(decided, "Ready")[2]


def test_a_refusal_is_reported() -> None:
    refusal = reasons.PondReason.POD_REFUSED, "hostPath is not allowed"

    found = condition(decide(nodes=[a_node("n1")], refusal=refusal), "Ready")

    assert found == ("False", "PodRefused", "hostPath is not allowed")


def test_the_status_stays_small() -> None:
    holdings = tuple(
        pond_messages.HoldingReport(
            digest=f"sha256:{number:064x}",
            files=1,
            bytes=1,
            files_here=1,
            bytes_here=1,
            used=number,
        )
        for number in range(5_000)
    )
    state = known(holdings=holdings).state("quant", "lake")

    shown = decide(nodes=[a_node("n1")], known=state).status

    assert len(shown.snapshots) == status.MAX_SNAPSHOTS
    assert shown.snapshots_total == 5_000
    assert shown.snapshots[0].digest == holdings[-1].digest


def test_byte_counts_alone_are_written_later() -> None:
    before = data_pond.DataPondStatus()
    after = data_pond.DataPondStatus(bytes=data_pond.PondBytes(used=1))
    other = data_pond.DataPondStatus(nodes=data_pond.PondNodes(total=1))

    assert status.wait_s(before, before, written=0, now=1) is None
    assert status.wait_s(before, after, written=0, now=0.5) == 1.5
    assert status.wait_s(before, other, written=0, now=0.5) == 0
    assert status.wait_s(before, after, written=None, now=0.5) == 0


def test_pod_has_its_digest_as_an_annotation() -> None:
    [body] = decide(nodes=[a_node("n1")]).create

    assert body["metadata"]["annotations"][worker_pods.TEMPLATE_ANNOTATION] == pods.digest_of(body)


# deletion


def deleted(known: ledger.Ledger | None, *, at: float = NOW, **facts: Any) -> plan.Plan:
    gone = pond()
    metadata = msgspec.structs.replace(
        gone.metadata,
        deletion_timestamp=clock.rfc3339(NOW),
        finalizers=(deletion_decision.FINALIZER,),
    )
    facts = {
        "pond": msgspec.structs.replace(gone, metadata=metadata),
        "nodes": [a_node("n1"), a_node("n2")],
        "secret": secret(),
        "known": None if known is None else known.state("quant", "lake"),
        **facts,
    }
    return plan.decide(plan.Facts(now=at, **facts), LOCAL)


def of_agents(**reports: dict[str, Any]) -> ledger.Ledger:
    made = ledger.Ledger(clock.ManualClock(NOW))
    made.pond_changed("quant", "lake", pond().spec, root="/p")
    for node_name, facts in reports.items():
        given = {"session": "s", "sequence": 1, "store": "d", **facts}
        made.take_report("quant", "lake", node_name, pond_messages.Report(**given))
    return made


def lease(name: str) -> pond_messages.LeaseReport:
    return pond_messages.LeaseReport(name=name)


def test_finalizer_is_set_when_an_agent_has_created_a_directory() -> None:
    assert not decide(known=of_agents(n1={"store": ""}).state("quant", "lake")).hold
    assert decide(known=of_agents(n1={}).state("quant", "lake")).hold


def test_leases_of_sync_sets_delay_the_deletion_of_a_pond() -> None:
    known = of_agents(n1={"leases": (lease("risk-g1"), lease("user_mine"))})

    end = deleted(known).end

    assert end is not None
    assert (end.remove, end.finished, end.reason) == (False, False, reasons.PondReason.LEASES_HELD)
    assert "risk-g1" in end.message
    assert "mine" not in end.message
    ready = deleted(known).status.conditions[0]
    assert (ready.status, ready.reason, ready.message) == ("False", "LeasesHeld", end.message)


def test_nodes_remove_their_data_before_the_finalizer_is_removed() -> None:
    known = of_agents(n1={"leases": (lease("user_mine"),)}, n2={})
    end = deleted(known).end
    assert end is not None
    assert (end.remove, end.finished) == (True, False)
    assert "n1, n2" in end.message

    known.remove("quant", "lake")
    for name in ("n1", "n2"):
        report = pond_messages.Report(session="s", sequence=2, removed=True)
        known.take_report("quant", "lake", name, report)

    end = deleted(known).end
    assert end is not None
    assert (end.remove, end.finished, end.left) == (False, True, ())


def test_unreachable_nodes_are_awaited_and_finally_named() -> None:
    known = of_agents(n1={}, n2={})
    known.remove("quant", "lake")
    report = pond_messages.Report(session="s", sequence=2, removed=True)
    known.take_report("quant", "lake", "n1", report)

    early = deleted(known, at=NOW + deletion_decision.DEADLINE_S - 1).end
    late = deleted(known, at=NOW + deletion_decision.DEADLINE_S).end

    assert early is not None
    assert (early.finished, early.again_s) == (False, 1)
    assert late is not None
    assert (late.finished, late.left) == (True, ("n2",))


def test_pond_without_agents_is_deleted_immediately() -> None:
    for known in (None, of_agents()):
        end = deleted(known).end
        assert end is not None
        assert (end.finished, end.left) == (True, ())


def test_deletion_does_not_wait_for_agents_that_cannot_be_created() -> None:
    """When the namespace is deleted, the Pods are gone and new ones are refused."""
    known = of_agents()
    waits = [seen(pods.make_pod(pond(), LOCAL, node="n1", secret_version="v"))]
    refusal = (reasons.PondReason.POD_REFUSED, "the namespace is being deleted")

    waiting, hopeless = (deleted(known, pods=waits, refusal=one).end for one in (None, refusal))

    assert waiting is not None
    assert not waiting.finished
    assert hopeless is not None
    assert (hopeless.finished, hopeless.left) == (True, ("n1",))


# directories


def aged(namespace: str, path: str, created: float, **spec: Any) -> data_pond.DataPond:
    metadata = meta.ObjectMeta(
        name="lake", namespace=namespace, uid="u", creation_timestamp=clock.rfc3339(created)
    )
    return data_pond.DataPond(metadata=metadata, spec=data_pond.DataPondSpec(path=path, **spec))


@pytest.mark.parametrize(
    ("path", "taken"),
    [("/data/p", True), ("/data/p/below", True), ("/data", True), ("/data/p2", False)],
)
def test_a_directory_belongs_to_the_older_of_two_ponds(
    path: str,
    taken: bool,  # noqa: FBT001 - a parameter
) -> None:
    old, new = aged("a", "/data/p", NOW - 60), aged("b", path, NOW)
    nodes = [a_node("n1")]

    of_new = decide(pond=new, others=[old, new], nodes=nodes)
    of_old = decide(pond=old, others=[old, new], nodes=nodes)

    assert [bool(of_new.create), bool(of_old.create)] == [not taken, True]
    ready = of_new.status.conditions[0]
    assert ("of DataPond a/lake on node n1" in ready.message) is taken
    assert (ready.reason == "PondUnusable") is taken


def test_ponds_of_different_nodes_may_have_the_same_directory() -> None:
    old = aged("a", "/data/p", NOW - 60, node_selector={"zone": "a"})
    new = aged("b", "/data/p", NOW, node_selector={"zone": "b"})
    nodes = [a_node("n1", zone="a"), a_node("n2", zone="b")]

    assert [
        one["spec"]["nodeName"] for one in decide(pond=new, others=[old], nodes=nodes).create
    ] == ["n2"]
