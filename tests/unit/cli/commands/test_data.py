"""`kiln data`: one action at a time, on one pond; what each asks of the server and prints."""

import json
import shlex
from typing import Any

import pytest

from kilnwork.cli import exits
from support import scripted_cli_server, serverless_cli

Server = scripted_cli_server.ScriptedCliServer
Kiln = serverless_cli.ServerlessCli

PONDS = "/apis/kilnwork.dev/v1alpha1/namespaces/default/dataponds"
LAKE = "/v1/namespaces/default/dataponds/lake"
DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p --snapshots --leases", "--snapshots and --leases are two things"),
        ("p --fetch s --release l", "--fetch and --release are two things"),
        ("--snapshots", "--snapshots is of one pond"),
        ("--fetch s", "--fetch is of one pond"),
        ("p --path a", "are of --fetch"),
        ("p --glob *", "are of --fetch"),
        ("p --lease l --release l", "are of --fetch"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(kiln: Kiln, line: str, words: str) -> None:
    ended = kiln.run("data", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "p",
        "p --snapshots",
        "p --leases",
        "p --fetch s --path a --glob * --lease l",
        "p --release l",
        "-o json",
    ],
)
def test_valid_arguments_need_a_server(kiln: Kiln, line: str) -> None:
    ended = kiln.run("data", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p --snapshots --release l", "--snapshots and --release are two things: choose one"),
        ("p --leases --fetch s", "--leases and --fetch are two things: choose one"),
        ("--leases", "--leases is of one pond: name it"),
        ("--release l", "--release is of one pond: name it"),
        ("p --lease l", "--path, --glob and --lease are of --fetch"),
        ("p -o table", "table"),
    ],
)
def test_usage_error_names_the_options_in_conflict(kiln: Kiln, line: str, words: str) -> None:
    ended = kiln.run("data", *shlex.split(line))
    assert (ended.code, ended.out) == (exits.Exit.USAGE, "")
    assert words in ended.err


def node(name: str) -> dict[str, Any]:
    """Return a node of a pond that holds one snapshot, as the manager describes it."""
    snapshot = {"digest": DIGEST, "bytes": 2048, "files": 4, "filesHere": 4, "leased": True}
    return {
        "node": name, "ready": True, "used": 2048, "capacity": 1 << 30, "snapshots": [snapshot],
        "leases": [], "counters": {}, "reason": "",
    }  # fmt: skip


def lease_view(*, ready: bool, state: str = "", message: str = "", **nodes: str) -> dict[str, Any]:
    """Return a lease on a snapshot `market`; `nodes`: what each node waits for, or ""."""
    snapshot = {
        "state": state, "reason": "NotFound", "message": message, "digest": DIGEST, "bytes": 2048,
    }  # fmt: skip
    found = {name: {"ready": not text, "message": text} for name, text in nodes.items()}
    return {"ready": ready, "snapshots": {"market": snapshot}, "nodes": found}


def test_table_of_all_ponds_has_a_row_for_each_node(connected_kiln: Kiln, server: Server) -> None:
    names = [{"metadata": {"name": name}} for name in ("lake", "sea")]
    server.respond(f"GET {PONDS}", {"items": names})
    server.respond(f"GET {LAKE}/nodes", {"items": [node("n1"), node("n2")]})
    server.respond("GET /v1/namespaces/default/dataponds/sea/nodes", {"items": [node("n3")]})
    ended = connected_kiln.run("data")
    assert (ended.code, ended.err) == (exits.Exit.OK, "")
    header, *rows = ended.out.splitlines()
    assert header.startswith("POND   NODE   READY")
    assert [row.split()[:2] for row in rows] == [["lake", "n1"], ["lake", "n2"], ["sea", "n3"]]


def test_table_of_one_pond_needs_only_its_nodes(connected_kiln: Kiln, server: Server) -> None:
    server.respond(f"GET {LAKE}/nodes", {"items": [node("n1")]})
    ended = connected_kiln.run("data", "lake")
    assert ended.out.splitlines()[1].split()[:2] == ["lake", "n1"]
    assert [request.path for request in server.requests] == [f"{LAKE}/nodes"]


def test_snapshots_are_shown_with_the_nodes_that_hold_them(
    connected_kiln: Kiln, server: Server
) -> None:
    server.respond(f"GET {LAKE}/nodes", {"items": [node("n1"), node("n2")]})
    ended = connected_kiln.run("data", "lake", "--snapshots")
    header, row = ended.out.splitlines()
    assert header.startswith("SNAPSHOT")
    assert row.startswith("sha256:abababababab")
    assert row.endswith("n1, n2")


def test_leases_are_shown_with_the_progress_of_nodes(connected_kiln: Kiln, server: Server) -> None:
    nodes = {"n1": {"ready": True, "message": ""}, "n2": {"ready": False, "message": "fetching"}}
    lease = {"name": "l", "user": "ann", "ready": False, "nodes": nodes}
    server.respond(f"GET {LAKE}/leases", {"items": [lease]})
    ended = connected_kiln.run("data", "lake", "--leases")
    header, row = ended.out.splitlines()
    assert header.startswith("LEASE")
    assert row.split() == ["l", "people", "false", "1/2", "fetching"]


@pytest.mark.parametrize(("option", "below"), [((), "nodes"), (("--leases",), "leases")])
def test_json_has_the_response_for_each_pond(
    connected_kiln: Kiln, server: Server, option: tuple[str, ...], below: str
) -> None:
    server.respond(f"GET {LAKE}/{below}", {"items": [{"name": below}]})
    ended = connected_kiln.run("data", "lake", *option, "-o", "json")
    assert json.loads(ended.out) == {"ponds": {"lake": [{"name": below}]}}
    assert ended.out.endswith("}\n")
    assert not ended.out.endswith("\n\n")


def test_namespace_without_ponds_is_reported_on_standard_error(
    connected_kiln: Kiln, server: Server
) -> None:
    server.respond(f"GET {PONDS}", {"items": []})
    server.respond("GET /api/v1/namespaces/default", {"metadata": {"name": "default"}})
    ended = connected_kiln.run("data")
    assert (ended.code, ended.out) == (exits.Exit.OK, "")
    assert ended.err == "no DataPonds in namespace default: `kiln apply` makes one\n"
    assert json.loads(connected_kiln.run("data", "-o", "json").out) == {"ponds": {}}


def test_fetch_repeats_its_request_until_all_nodes_have_the_data(
    connected_kiln: Kiln, server: Server
) -> None:
    server.respond(
        f"PUT {LAKE}/leases/tomorrow",
        lease_view(ready=False, message="listing the source", n1="waits"),
        lease_view(ready=False, n1="", n2="1 of 2 files"),
        lease_view(ready=False, n1="", n2="1 of 2 files"),
        lease_view(ready=True, state="Ready", n1="", n2=""),
    )
    ended = connected_kiln.run(
        "data", "lake", "--fetch", "market", "--lease", "tomorrow", "--path", "a", "--path", "b",
        "--glob", "*.csv",
    )  # fmt: skip
    assert ended.code == exits.Exit.OK
    assert ended.out == f"{DIGEST} (2.0 KiB) is on 2 nodes, held by lease tomorrow\n"
    assert ended.err == "listing the source\n1 of 2 files\n"
    source = {"source": "market", "paths": ["a", "b"], "glob": "*.csv"}
    body = {"snapshots": [{"name": "market", "from": source}]}
    assert [request.body for request in server.requests] == [body] * 4
    assert {request.query["wait"] for request in server.requests} == {"20"}


def test_fetch_without_a_lease_name_takes_that_of_the_source(
    connected_kiln: Kiln, server: Server
) -> None:
    server.respond(f"PUT {LAKE}/leases/market", lease_view(ready=True, n1=""))
    ended = connected_kiln.run("data", "lake", "--fetch", "market")
    assert ended.out == f"{DIGEST} (2.0 KiB) is on 1 node, held by lease market\n"
    source = {"source": "market", "paths": [], "glob": ""}
    assert server.requests[0].body == {"snapshots": [{"name": "market", "from": source}]}


def test_fetch_of_a_file_job_names_its_directory(connected_kiln: Kiln, server: Server) -> None:
    view = lease_view(ready=True, n1="")
    server.respond(
        f"PUT {LAKE}/leases/parts", view | {"snapshots": {"parts": view["snapshots"]["market"]}}
    )
    ended = connected_kiln.run("data", "lake", "--fetch", "kiln:2026-11-1234/parts")
    assert ended.out.endswith("held by lease parts\n")
    source = {"files": "2026-11-1234", "path": "parts", "paths": [], "glob": ""}
    assert server.requests[0].body == {"snapshots": [{"name": "parts", "from": source}]}


def test_fetch_of_an_unknown_directory_is_a_usage_error(
    connected_kiln: Kiln, server: Server
) -> None:
    ended = connected_kiln.run("data", "lake", "--fetch", "kiln:2026-11-1234/nowhere")
    assert ended.code == exits.Exit.USAGE
    assert "--fetch: 'kiln:2026-11-1234/nowhere': a file job has the directories" in ended.err
    assert server.requests == []


def test_fetch_that_failed_says_why(connected_kiln: Kiln, server: Server) -> None:
    failed = lease_view(ready=False, state="Failed", message="no such source", n1="waits")
    server.respond(f"PUT {LAKE}/leases/market", failed)
    ended = connected_kiln.run("data", "lake", "--fetch", "market")
    assert (ended.code, ended.out) == (exits.Exit.FAILED, "")
    assert "NotFound: no such source" in ended.err
    assert len(server.requests) == 1


def test_release_deletes_the_lease(connected_kiln: Kiln, server: Server) -> None:
    server.respond(f"DELETE {LAKE}/leases/a%2Fb", {})
    ended = connected_kiln.run("data", "lake", "--release", "a/b")
    assert (ended.code, ended.out) == (exits.Exit.OK, "lease a/b released\n")
    assert [(r.method, r.path) for r in server.requests] == [("DELETE", f"{LAKE}/leases/a%2Fb")]


def test_release_of_an_unknown_lease_is_not_found(connected_kiln: Kiln, server: Server) -> None:
    server.respond("GET /api/v1/namespaces/default", {"metadata": {"name": "default"}})
    ended = connected_kiln.run("data", "lake", "--release", "l")
    assert (ended.code, ended.out) == (exits.Exit.NOT_FOUND, "")
