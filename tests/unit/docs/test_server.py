"""docs/reference/server.md has the numbers, kinds and files of the code."""

import inspect
import re

import pytest

from kilnwork.api import attempts, input_assembly, names
from kilnwork.channel import worker_side, worker_side_lease
from kilnwork.cli.commands import up
from kilnwork.controlplane import cluster, gc, store
from kilnwork.controlplane.apiserver import builtin, namespaces, pki, rules_data, statuses, tokens
from kilnwork.controlplane.node import log_writer, shim
from kilnwork.dispatch.hub import attempt_logs, hub, retention
from kilnwork.dispatch.machine import task_starts
from kilnwork.server import task_api
from kilnwork.worker import unix_http_server
from support import pages, served_kinds

PAGE = (pages.DOCS / "reference" / "server.md").read_text()
SECTIONS = pages.sections(PAGE, 2)
FLOWING = " ".join(PAGE.split())

KIB, MIB = 1024, 1024 * 1024


def limit(what: str) -> str:
    return next(row.cells[1] for row in pages.table(SECTIONS["Limits"]) if row.key == what)


def size(number: int) -> str:
    return f"{number // MIB} MiB" if number >= MIB else f"{number // KIB} KiB"


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("a result", attempts.MAX_INLINE_BYTES),
        ("a result in `status.result.value`", attempts.MAX_STATUS_BYTES),
        ("the inputs of a task together", input_assembly.MAX_INPUT_BYTES),
        ("spec and inputs together", task_starts.MAX_TASK_BYTES),
        ("a request to a task's socket", unix_http_server.MAX_BODY_BYTES),
        ("the log of an attempt", 2 * attempt_logs.FILE_BYTES),
        ("the log of a container", 2 * log_writer.LIMIT),
        ("the body of a request", statuses.MAX_BODY_BYTES),
        ("a Secret or ConfigMap", rules_data.MAX_BYTES),
    ],
)
def test_sizes_are_those_of_the_code(what: str, number: int) -> None:
    assert limit(what) == size(number)


def test_other_limits_are_those_of_the_code() -> None:
    assert limit("changes from which a watch can resume") == f"{store.KEEP_CHANGES:,}"
    assert limit("finished tasks without an object") == f"{retention.KEEP_S / 86_400:g} days"
    assert limit("kube events") == f"{gc.EVENT_TTL_S // 3600} hour"
    assert f"(at most {task_api.MAX_WAIT_S})" in FLOWING
    assert f"`limit` (at most {task_api.MAX_LIMIT})" in FLOWING


def test_times_are_those_of_the_code() -> None:
    lease_s = hub.HubOptions().lease_s
    patience_s = inspect.signature(worker_side.Peer).parameters["patience_s"].default
    assert f"lease lasts {lease_s:g} s and is renewed every {hub.RENEW_S:g} s" in FLOWING
    assert f"back within {lease_s - hub.RENEW_S - worker_side_lease.MARGIN_S:g} s" in FLOWING
    assert f"workers leave after {patience_s:g} s" in FLOWING
    assert f"all other containers after {shim.PATIENCE_S:g} s" in FLOWING
    assert f"at least {tokens.MIN_SECONDS // 60} minutes, by default one hour" in FLOWING
    assert tokens.DEFAULT_SECONDS == 3600
    assert (pki.CA_DAYS, pki.LEAF_DAYS, pki.RENEW_BEFORE_S) == (3650, 365, 30 * 86_400)


def test_ports_and_stop_are_those_of_the_code() -> None:
    ports = {row.key: row.cells[1] for row in pages.table(SECTIONS["Ports"])}
    assert ports["`--port P`".strip("`")] == str(cluster.DEFAULT_PORT)
    assert ports["P + 1"] == str(cluster.DEFAULT_PORT + 1)
    port = next(o for o in up.command.params if o.name == "port")
    assert port.default == cluster.DEFAULT_PORT
    assert "ends within 20 s" in FLOWING


def test_kinds_and_subresources_are_those_that_are_served() -> None:
    rows = [
        (r.key, r.cells[1], r.cells[2], {s.strip("`") for s in r.cells[3].split(", ")} - {""})
        for r in pages.table(SECTIONS["Kinds and verbs"])
    ]
    assert rows == [
        (
            served.resource.kind,
            served.resource.api_version,
            "yes" if served.resource.namespaced else "no",
            {sub.name for sub in served.subresources},
        )
        for served in served_kinds.SERVED
    ]
    fewer = {s.resource.kind: set(builtin.VERBS) - set(s.verbs) for s in served_kinds.SERVED}
    assert {kind: verbs for kind, verbs in fewer.items() if verbs} == {
        "Namespace": {"deletecollection"}
    }
    assert all(verb in SECTIONS["Kinds and verbs"] for verb in builtin.VERBS)


def test_first_namespaces_are_named() -> None:
    assert all(f"`{name}`" in SECTIONS["The first start"] for name in namespaces.BASIC)


def test_short_names_are_made_as_described() -> None:
    long = "a.long.name-" * 20
    short = names.dns_label(long)
    assert len(short) <= 63
    assert short.startswith("a-long-name-a-long-name-")
    assert len(short.rpartition("-")[2]) == 8
    assert (
        f"characters and contain dots. Labels and host names have {names.LABEL_LENGTH}" in FLOWING
    )
    assert f"may have {names.SUBDOMAIN_LENGTH} characters" in FLOWING


def test_every_metric_is_in_the_table() -> None:
    sources = (pages.ROOT / "src" / "kilnwork" / "cli" / "wiring").glob("*.py")
    named = {name for file in sources for name in re.findall(r'"(kilnwork_\w+)"', file.read_text())}
    assert {row.key for row in pages.table(SECTIONS["Metrics"])} == named
