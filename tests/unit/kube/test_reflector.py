"""A cache that stays like the server, whatever happens to list and watch."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import aiohttp.web
import pytest

from kilnwork.api import api_resources, kinds, task
from kilnwork.kit import backoff, ids
from kilnwork.kube import cache, client, objects, reflector
from support import scripted_apiserver, scripted_objects, waiting

Seen = list[tuple[str, bool, bool]]


class Follower:
    """A running reflector of dicts, and what it reported."""

    def __init__(self, kube: client.Client, server: scripted_objects.Objects) -> None:
        self.server = server
        self.cache: cache.Cache[dict[str, Any]] = cache.Cache()
        self.reported: list[tuple[str, str]] = []
        self.last: dict[str, Any] = {}
        self.reflector = reflector.Reflector(
            kube, api_resources.PODS, dict, self.cache, self.on_change
        )
        self.reflector.backoff = backoff.Backoff(base_s=0.001, max_s=0.01)

    def on_change(
        self, key: objects.Key, old: dict[str, Any] | None, new: dict[str, Any] | None
    ) -> None:
        verb = "added" if old is None else "deleted" if new is None else "changed"
        self.reported.append((verb, key[1]))
        self.last[key[1]] = old if new is None else new

    async def like_server(self) -> None:
        """Wait until the cache holds what the server holds, and a watch is open."""

        def same() -> bool:
            mine = {obj["metadata"]["name"]: obj for obj in self.cache.list()}
            return mine == self.server.stored and self.server.watching == 1

        await waiting.wait_until_async(same, what="cache like the server")


@pytest.fixture
def server(stand: scripted_apiserver.ScriptedApiServer) -> scripted_objects.Objects:
    return scripted_objects.Objects(stand)


@pytest.fixture
async def follower(
    kube: client.Client, server: scripted_objects.Objects
) -> AsyncIterator[Follower]:
    server.put("a")
    server.put("b")
    server.put("c")
    follower = Follower(kube, server)
    running = asyncio.create_task(follower.reflector.run())
    await asyncio.wait_for(follower.reflector.synced.wait(), 30)
    await follower.like_server()
    yield follower
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_lists_in_pages_then_watches(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    assert follower.reported == [("added", "a"), ("added", "b"), ("added", "c")]
    server.put("a", f=1)
    server.put("d")
    server.delete("b")
    await follower.like_server()
    assert follower.reported[3:] == [("changed", "a"), ("added", "d"), ("deleted", "b")]
    assert follower.last["b"]["last"]
    assert (server.lists, server.watches_opened) == (1, 1)


async def test_list_is_reported_oldest_first_if_requested(
    kube: client.Client, server: scripted_objects.Objects
) -> None:
    for name, second in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        server.put(name)
        server.stored[name]["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
    reported: list[str] = []
    followed = reflector.Reflector(
        kube,
        api_resources.PODS,
        dict,
        cache.Cache[dict[str, Any]](),
        lambda key, _, __: reported.append(key[1]),
        scope=reflector.Scope(oldest_first=True),
    )
    running = asyncio.create_task(followed.run())
    try:
        await asyncio.wait_for(followed.synced.wait(), 30)
        assert reported == ["b", "d", "c", "a"]
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_end_of_stream_is_resumed_without_a_list(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.end_watches()
    await waiting.wait_until_async(lambda: server.watches_opened == 2, what="second watch")
    server.put("d")
    await follower.like_server()
    assert server.lists == 1


async def test_changes_while_cut_off_are_not_missed(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.refuse = aiohttp.web.Response(status=503)
    server.cut_watches()
    server.put("a", f=2)
    server.delete("c")
    await waiting.wait_until_async(lambda: follower.reflector.problem, what="a problem")
    server.refuse = None
    await follower.like_server()
    assert follower.reported[3:] == [("changed", "a"), ("deleted", "c")]
    assert server.lists == 1
    assert follower.reflector.problem == ""


async def test_expired_watch_lists_again_and_reports_differences(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.refuse = aiohttp.web.Response(status=503)
    server.cut_watches()
    server.delete("a")
    server.put("b", f=1)
    server.put("d")
    server.compact()
    server.refuse = None
    await follower.like_server()
    assert sorted(follower.reported[3:]) == [("added", "d"), ("changed", "b"), ("deleted", "a")]
    assert server.lists == 2


async def test_expired_watch_lists_again_at_once_after_a_long_outage(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.refuse = aiohttp.web.Response(status=503)
    server.cut_watches()
    server.delete("a")
    server.compact()
    await waiting.wait_until_async(lambda: follower.reflector.problem, what="a problem")

    class LongOnceExpired(backoff.Backoff):
        def delay_s(self, failures: int, *, entropy: ids.Entropy | None = None) -> float:
            usual = super().delay_s(failures, entropy=entropy)
            return 3600.0 if usual and server.watches_expired else usual

    follower.reflector.backoff = LongOnceExpired(base_s=0.001, max_s=0.01)
    server.refuse = None
    await follower.like_server()
    assert server.watches_expired == 1
    assert server.lists == 2


async def test_error_item_410_lists_again(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.send_error(410, "Expired")
    await waiting.wait_until_async(lambda: server.lists == 2, what="second list")
    await follower.like_server()
    assert len(follower.reported) == 3


async def test_watch_that_the_server_cannot_continue_lists_again(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    """A real server says 500 when etcd was compacted right before the next change."""
    server.send_error(500, "InternalError")
    await waiting.wait_until_async(lambda: server.lists == 2, what="second list")
    await follower.like_server()
    assert follower.reflector.problem == ""


@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_a_watch_that_may_not_begin_now_is_resumed(
    follower: Follower, server: scripted_objects.Objects, status: int
) -> None:
    server.refuse = aiohttp.web.Response(status=status)
    server.cut_watches()
    server.put("a", f=1)
    await waiting.wait_until_async(lambda: follower.reflector.problem, what="a problem")
    server.refuse = None
    await follower.like_server()
    assert server.lists == 1


async def test_bookmarks_move_the_place_to_resume(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.bookmark()
    server.put("a", f=1)
    await follower.like_server()
    server.bookmark()
    await waiting.wait_until_async(
        lambda: follower.reflector._version == str(server.version), what="it has read that"
    )
    server.compact()
    server.end_watches()
    await waiting.wait_until_async(lambda: server.watches_opened == 2, what="second watch")
    await follower.like_server()
    assert server.lists == 1


async def test_re_created_object_is_reported_as_delete_and_create(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.refuse = aiohttp.web.Response(status=503)
    server.cut_watches()
    server.delete("a")
    server.put("a", uid="another")
    server.compact()
    server.refuse = None
    await follower.like_server()
    assert follower.reported[3:] == [("deleted", "a"), ("added", "a")]


async def test_a_torn_list_is_taken_whole(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    server = scripted_objects.Objects(stand)
    for name in "abcde":
        server.put(name)
    server.expire_pages = 1
    follower = Follower(kube, server)
    running = asyncio.create_task(follower.reflector.run())
    await follower.like_server()
    running.cancel()
    assert sorted(follower.reported) == [("added", name) for name in "abcde"]
    limits = [query.get("limit") for _, _, query, _ in stand.asked]
    assert limits[:3] == ["500", "500", "0"]


async def test_a_server_that_ends_every_watch_is_not_hammered(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    server = scripted_objects.Objects(stand)
    server.put("a")
    server.end_watches_at_once = True
    follower = Follower(kube, server)
    follower.reflector.backoff = backoff.Backoff(base_s=60, max_s=60)
    running = asyncio.create_task(follower.reflector.run())
    await waiting.wait_until_async(lambda: server.watches_opened == 2, what="two watches")
    await asyncio.sleep(0.05)
    running.cancel()
    assert server.watches_opened == 2


async def test_retry_after_is_obeyed(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    server = scripted_objects.Objects(stand)
    server.refuse = aiohttp.web.Response(status=429, headers={"Retry-After": "60"})
    follower = Follower(kube, server)
    running = asyncio.create_task(follower.reflector.run())
    await waiting.wait_until_async(lambda: stand.asked, what="a request")
    await asyncio.sleep(0.05)
    running.cancel()
    assert len(stand.asked) == 1
    assert not follower.reflector.synced.is_set()


async def test_failing_subscriber_does_not_disturb_other_subscribers(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    heard: list[objects.Key] = []
    follower.reflector.subscribe(fail)
    follower.reflector.subscribe(lambda key, _old, _new: heard.append(key))
    server.put("a", f=1)
    await follower.like_server()
    assert heard == [("x", "a")]


async def test_unreadable_change_keeps_the_cached_object(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    server = scripted_objects.Objects(stand)
    server.put("a", spec={"priority": 1})
    known: cache.Cache[task.Task] = cache.Cache()
    follower = reflector.Reflector(kube, kinds.TASKS, task.Task, known)
    running = asyncio.create_task(follower.run())
    await waiting.wait_until_async(lambda: server.watching, what="a watch")
    server.put("a", spec={"priority": []})
    server.put("b")
    await waiting.wait_until_async(lambda: ("x", "b") in known, what="the next object")
    kept = known.get(("x", "a"))
    assert kept is not None
    assert kept.spec.priority == 1
    server.delete("a")
    await waiting.wait_until_async(lambda: ("x", "a") not in known, what="deletion")
    running.cancel()


@pytest.mark.parametrize("metadata", [{}, {"labels": "none"}, {"name": ["none"]}])
async def test_object_that_is_unreadable_in_a_list_is_not_reported_as_deleted(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer, metadata: dict[str, Any]
) -> None:
    server = scripted_objects.Objects(stand)
    server.put("a", spec={"priority": 1})
    known: cache.Cache[task.Task] = cache.Cache()
    deleted: list[str] = []
    follower = reflector.Reflector(
        kube,
        kinds.TASKS,
        task.Task,
        known,
        lambda key, _, new: deleted.append(key[1]) if new is None else None,
    )
    follower.backoff = backoff.Backoff(base_s=0.001, max_s=0.01)
    running = asyncio.create_task(follower.run())
    await waiting.wait_until_async(lambda: server.watching, what="a watch")
    server.put("a", spec={"priority": []})
    server.stored["a"]["metadata"].update(metadata)
    server.compact()
    server.send_error(410, "Expired")
    await waiting.wait_until_async(lambda: server.watches_opened == 2, what="a watch again")
    kept = known.get(("x", "a"))
    assert kept is not None
    assert kept.spec.priority == 1
    assert deleted == []
    server.delete("a")
    server.compact()
    server.send_error(410, "Expired")
    await waiting.wait_until_async(lambda: deleted == ["a"], what="deletion")
    running.cancel()


@contextlib.asynccontextmanager
async def following(followed: reflector.Reflector[dict[str, Any]]) -> AsyncIterator[None]:
    """Run a reflector; the body begins when its cache is complete."""
    running = asyncio.create_task(followed.run())
    try:
        await asyncio.wait_for(followed.synced.wait(), 30)
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_scope_selects_objects_of_the_list_and_of_the_watch(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    server = scripted_objects.Objects(stand)
    scope = reflector.Scope(namespace="x", label_selector="a=b", field_selector="c=d")
    known = cache.Cache[dict[str, Any]]()
    followed = reflector.Reflector(kube, api_resources.PODS, dict, known, scope=scope)
    async with following(followed):
        await waiting.wait_until_async(lambda: server.watching, what="a watch")
    (_, listed, of_list, _), (_, watched, of_watch, _) = stand.asked[:2]
    assert listed == watched == "/api/v1/namespaces/x/pods"
    for query in (of_list, of_watch):
        assert (query["labelSelector"], query["fieldSelector"]) == ("a=b", "c=d")
    assert ("watch" in of_list, of_watch["watch"]) == (False, "true")


async def test_list_drops_objects_of_its_own_namespace_only(
    kube: client.Client, stand: scripted_apiserver.ScriptedApiServer
) -> None:
    scripted_objects.Objects(stand)
    known = cache.Cache[dict[str, Any]]()
    for namespace in ("x", "y"):
        known.put({"metadata": {"name": "a", "namespace": namespace, "uid": "u"}})
    scope = reflector.Scope(namespace="x")
    followed = reflector.Reflector(kube, api_resources.PODS, dict, known, scope=scope)
    async with following(followed):
        assert list(known.keys()) == [("y", "a")]
    everywhere = reflector.Reflector(kube, api_resources.PODS, dict, known)
    async with following(everywhere):
        assert list(known.keys()) == []


def test_reflector_that_does_not_run_yet_has_a_problem(kube: client.Client) -> None:
    followed = reflector.Reflector(kube, api_resources.PODS, dict, cache.Cache[dict[str, Any]]())
    assert (followed.problem, followed.synced.is_set()) == ("not listed yet", False)


async def test_broken_connection_is_resumed_without_a_list(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.cut_watches()
    await waiting.wait_until_async(lambda: server.watches_opened == 2, what="second watch")
    await follower.like_server()
    assert server.lists == 1


@dataclasses.dataclass(frozen=True)
class RecordedBackoff(backoff.Backoff):
    """A back-off with the number of failures in a row at each of its uses."""

    failures: list[int] = dataclasses.field(default_factory=list)

    def delay_s(self, failures: int, *, entropy: ids.Entropy | None = None) -> float:
        self.failures.append(failures)
        return 0.001


async def test_only_a_watch_with_a_change_ends_without_a_failure(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    recorded = RecordedBackoff(base_s=0.001, max_s=0.001)
    follower.reflector.backoff = recorded

    async def end_watch() -> None:
        ended = len(recorded.failures) + 1
        server.end_watches()
        await waiting.wait_until_async(lambda: len(recorded.failures) == ended, what="an end")
        await follower.like_server()

    await end_watch()
    await end_watch()
    server.put("d")
    await follower.like_server()
    await end_watch()
    assert recorded.failures[1:] == [1, 0]
    assert (reflector.STEADY_S, reflector.BACKOFF.max_s) == (5.0, 5.0)


async def test_deletion_is_reported_with_the_last_state_that_is_known(
    follower: Follower, server: scripted_objects.Objects
) -> None:
    server.put("a", f=1)
    await follower.like_server()
    server.refuse = aiohttp.web.Response(status=503)
    server.cut_watches()
    server.delete("a")  # missed: the list lacks it
    server.compact()
    server.refuse = None
    await follower.like_server()
    assert follower.last["a"]["f"] == 1
    server.delete("b")
    await follower.like_server()
    assert follower.last["b"]["last"]
