"""Paths of ponds: agents with their token, users with their rights."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kilnwork.api import data_pond, pond_messages
from kilnwork.controllers import errors as controller_errors
from kilnwork.controllers.data_pond import ledger
from kilnwork.kit import asgi, clock
from kilnwork.server import pond_api, pond_exchange, ports, problems
from support import pond_manager
from support import ponds as pond_files

FILES = {"a": b"1", "b": b"22"}
MANIFEST = pond_files.manifest_of(FILES)


class Verifier:
    """Knows one token."""

    ready = True

    async def verify(self, namespace: str, pond: str, credential: str) -> bool:
        if not self.ready:
            raise controller_errors.NotYet("not yet")
        return (namespace, pond, credential) == ("quant", "lake", "good")


class Rights:
    """Lets a user do what is in `allowed`."""

    def __init__(self) -> None:
        self.allowed = {"get dataponds", "update dataponds/leases", "delete dataponds/leases"}

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        what = f"{question.verb} {question.resource}"
        what += f"/{question.subresource}" if question.subresource else ""
        return None if what in self.allowed else f"{user} may not {what}"


class World:
    """The apps that share one ledger."""

    def __init__(self) -> None:
        self.ledger = ledger.Ledger(clock.SystemClock())
        source = data_pond.PondSource(name="disk", uri="file:///data")
        self.spec = data_pond.DataPondSpec(sources=(source,))
        self.ledger.pond_changed("quant", "lake", self.spec, root="/pond")
        self.verifier, self.rights = Verifier(), Rights()
        self.exchange = pond_exchange.PondExchange(
            self.ledger, self.verifier, pond_manager.JobFiles({})
        )
        self.people = pond_api.Ponds(self.ledger, self.rights, time=clock.SystemClock())
        self.sequence = 0

    async def agent(
        self, method: str, path: str, *, body: bytes = b"", token: str = "good", query: str = ""
    ) -> tuple[int, bytes]:
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        return await _request(self.exchange, method, path, body=body, headers=headers, query=query)

    async def report(self, *, node: str = "n1", **facts: Any) -> pond_messages.NodeOrder:
        self.sequence += 1
        report = pond_messages.Report(session="s", sequence=self.sequence, **facts)
        path = f"/ponds/quant/lake/nodes/{node}"
        status, body = await self.agent("POST", path, body=msgspec.json.encode(report))
        assert status == 200
        return msgspec.json.decode(body, type=pond_messages.NodeOrder)

    async def person(
        self, method: str, *rest: str, body: Any = None, pond: str = "lake", query: str = ""
    ) -> tuple[int, Any]:
        async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
            request, response = asgi.Request(scope, receive), problems.response(send)
            work = self.people.send(request, ("quant", pond, list(rest)), response)
            await problems.respond(work, request, response)

        sent = b"" if body is None else msgspec.json.encode(body)
        status, result = await _request(app, method, "/x", body=sent, headers=[], query=query)
        return status, msgspec.json.decode(result) if result else None


async def _request(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    method: str,
    path: str,
    *,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
    query: str,
) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


@pytest.fixture
def world() -> World:
    return World()


async def test_agent_reports_and_gets_its_order(world: World) -> None:
    order = await world.report()

    assert order.limits.parallel == 8
    assert world.ledger.nodes("quant", "lake") == {"n1"}


async def test_waiting_agent_gets_new_order_at_once(world: World) -> None:
    order = await world.report()
    report = pond_messages.Report(session="s", sequence=9, knows=order.revision)
    path = "/ponds/quant/lake/nodes/n1"
    waiting = asyncio.ensure_future(
        world.agent("POST", path, body=msgspec.json.encode(report), query="wait=30")
    )
    await asyncio.sleep(0)

    world.ledger.want("quant", "lake", "set-g1", nodes=None, snapshots=[])
    status, body = await asyncio.wait_for(waiting, 5)

    assert status == 200
    order = msgspec.json.decode(body, type=pond_messages.NodeOrder)
    assert [lease.name for lease in order.leases] == ["set-g1"]


@pytest.mark.parametrize("token", ["", "bad"])
@pytest.mark.parametrize("path", ["/ponds/quant/lake/nodes/n1", "/ponds/quant/other/nodes/n1"])
async def test_agent_without_valid_token_is_refused(world: World, token: str, path: str) -> None:
    status, _ = await world.agent("POST", path, body=b"{}", token=token)

    assert status == 401
    assert world.ledger.nodes("quant", "lake") == frozenset()


async def test_starting_manager_sends_503_to_agents(world: World) -> None:
    world.verifier.ready = False

    assert (await world.agent("POST", "/ponds/quant/lake/nodes/n1", body=b"{}"))[0] == 503


@pytest.mark.parametrize("body", [b"", b"[]", b'{"session": 1}'])
async def test_invalid_report_is_refused(world: World, body: bytes) -> None:
    assert (await world.agent("POST", "/ponds/quant/lake/nodes/n1", body=body))[0] == 400


async def test_manifests_are_stored_and_sent_by_manager(world: World) -> None:
    path = f"/ponds/quant/lake/manifests/{MANIFEST.digest[7:]}"

    assert (await world.agent("GET", path))[0] == 404
    assert (await world.agent("PUT", path, body=MANIFEST.encoded))[0] == 204
    assert await world.agent("GET", path) == (200, MANIFEST.encoded)
    assert (await world.agent("PUT", path, body=b"{}"))[0] == 400
    assert (await world.agent("DELETE", path))[0] == 404


# people

WANTED = {"snapshots": [{"name": "market", "from": {"source": "disk"}}]}


async def pinned(world: World) -> None:
    """Act as the agent that carries out the requested pin."""
    order = await world.report()
    [pin] = order.pins
    path = f"/ponds/quant/lake/manifests/{MANIFEST.digest[7:]}"
    await world.agent("PUT", path, body=MANIFEST.encoded)
    await world.report(pins=(pond_messages.PinReport(id=pin.id, digest=MANIFEST.digest),))


async def test_lease_request_is_repeated_until_ready(world: World) -> None:
    await world.report()
    status, view = await world.person("PUT", "leases", "mine", body=WANTED)
    assert (status, view["snapshots"]["market"]["state"]) == (202, "Pending")

    await pinned(world)
    status, view = await world.person("PUT", "leases", "mine", body=WANTED)
    assert (status, view["snapshots"]["market"]["digest"]) == (202, MANIFEST.digest)
    assert view["nodes"]["n1"]["bytesTotal"] == 3

    order = await world.report()
    [lease] = order.leases
    [snapshot] = lease.snapshots
    assert (snapshot.digest, snapshot.source and snapshot.source.uri) == (
        MANIFEST.digest,
        "file:///data",
    )
    ready = pond_messages.SnapshotReport(
        name="market", digest=MANIFEST.digest, paths_digest="all", access="read", ready=True
    )
    await world.report(leases=(pond_messages.LeaseReport(name=lease.name, snapshots=(ready,)),))

    status, view = await world.person("PUT", "leases", "mine", body=WANTED)
    assert (status, view["ready"], view["name"]) == (200, True, "mine")
    assert (await world.person("GET", "leases", "mine"))[1]["ready"]
    assert [one["name"] for one in (await world.person("GET", "leases"))[1]["items"]] == ["mine"]

    assert await world.person("DELETE", "leases", "mine") == (204, None)
    assert (await world.person("DELETE", "leases", "mine"))[0] == 404
    held = pond_messages.LeaseReport(name=lease.name)
    assert (await world.report(leases=(held,))).released == (lease.name,)


async def test_leases_of_sets_are_not_user_leases(world: World) -> None:
    world.ledger.want("quant", "lake", "set-g1", nodes=None, snapshots=[])

    assert (await world.person("GET", "leases", "set-g1"))[0] == 404
    assert (await world.person("DELETE", "leases", "set-g1"))[0] == 404
    assert world.ledger.leases("quant") == {("lake", "set-g1")}


async def test_nodes_are_listed(world: World) -> None:
    await world.report(used=5, capacity=10)

    status, result = await world.person("GET", "nodes")

    assert status == 200
    [node] = result["items"]
    assert (node["node"], node["ready"], node["used"]) == ("n1", True, 5)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "snapshots"),
        ({"snapshots": []}, "length"),
        ({"snapshots": [{"name": "A", "digest": "sha256:" + "0" * 64}]}, "name"),
        ({"snapshots": [{"name": "a"}]}, "give from or digest"),
        ({"snapshots": [{"name": "a", "digest": "sha256:" + "0" * 64}]}, "no node has"),
        ({"snapshots": [{"name": "a", "digest": "x"}]}, "digest"),
        ({**WANTED, "more": 1}, "more"),
    ],
)
async def test_invalid_lease_requests_are_refused(world: World, body: Any, why: str) -> None:
    status, problem = await world.person("PUT", "leases", "mine", body=body)

    assert status == 422
    assert why in problem["detail"]


@pytest.mark.parametrize("lease", ["..", "a/b", "x" * 300, "Ä"])
async def test_invalid_lease_names_are_refused(world: World, lease: str) -> None:
    """The name is used only when the snapshot is pinned."""
    digest = MANIFEST.digest
    world.ledger.put_manifest("quant", "lake", MANIFEST)
    body = {"snapshots": [{"name": "a", "digest": digest}]}

    status, problem = await world.person("PUT", "leases", lease, body=body)

    assert (status, "name" in problem["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", ["nodes"]),
        ("GET", ["leases"]),
        ("PUT", ["leases", "a"]),
        ("DELETE", ["leases", "a"]),
    ],
)
async def test_users_need_rights_for_ponds(world: World, method: str, rest: list[str]) -> None:
    world.rights.allowed.clear()

    status, problem = await world.person(method, *rest, body=WANTED)

    assert (status, "may not" in problem["detail"]) == (403, True)


async def test_lease_on_job_files_needs_right_to_get_the_job(world: World) -> None:
    body = {"snapshots": [{"name": "a", "from": {"files": "2026-11-1"}}]}

    status, problem = await world.person("PUT", "leases", "a", body=body)
    assert (status, "may not get jobs" in problem["detail"]) == (403, True)

    world.rights.allowed.add("get jobs")
    status, _ = await world.person("PUT", "leases", "a", body=body)
    assert status == 202


@pytest.mark.parametrize(
    ("method", "rest", "status"),
    [
        ("POST", ["nodes"], 405),
        ("POST", ["leases", "a"], 405),
        ("GET", ["nothing"], 404),
        ("GET", ["leases", "a"], 404),
    ],
)
async def test_unknown_paths_are_not_found(
    world: World, method: str, rest: list[str], status: int
) -> None:
    assert (await world.person(method, *rest))[0] == status


@pytest.mark.parametrize(("method", "rest"), [("GET", ["nodes"]), ("PUT", ["leases", "a"])])
async def test_missing_ponds_are_not_found(world: World, method: str, rest: list[str]) -> None:
    assert (await world.person(method, *rest, body=WANTED, pond="sea"))[0] == 404
