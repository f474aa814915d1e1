"""The order of start and stop, and what happens when a part fails."""

from typing import Any

import aiohttp.web
import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.kube import cache, client, controller, errors, manager, objects, queue, reflector
from support import scripted_apiserver, scripted_objects


class Service:
    """Writes down when it starts and stops."""

    def __init__(self, name: str, diary: list[str], *, fails: bool = False) -> None:
        self.name, self.diary, self.fails = name, diary, fails

    async def start(self) -> None:
        self.diary.append(f"start {self.name}")
        if self.fails:
            raise errors.KubeError("no")

    async def stop(self) -> None:
        self.diary.append(f"stop {self.name}")
        if self.fails:
            raise ValueError("a bug")


class Loop(controller.Controller):
    """A controller that writes down when it starts, with how full a cache."""

    def __init__(self, name: str, diary: list[str], known: cache.Cache[dict[str, Any]]) -> None:
        super().__init__(name, self.nothing, queue.WorkQueue())
        self.diary, self.known = diary, known

    async def nothing(self, _: objects.Key) -> None:
        pass

    async def start(self) -> None:
        self.diary.append(f"start {self.name} with {len(self.known)}")
        await super().start()

    async def stop(self, *, grace_s: float = 5.0) -> None:
        self.diary.append(f"stop {self.name}")
        await super().stop(grace_s=grace_s)


@pytest.fixture
def server(stand: scripted_apiserver.ScriptedApiServer) -> scripted_objects.Objects:
    server = scripted_objects.Objects(stand)
    for name in "abc":
        server.put(name)
    return server


async def test_controllers_start_with_full_caches_and_stop_first(
    kube: client.Client, server: scripted_objects.Objects
) -> None:
    diary: list[str] = []
    known: cache.Cache[dict[str, Any]] = cache.Cache()
    all_parts = manager.Manager()
    all_parts.add_controller(Loop("one", diary, known), Loop("two", diary, known))
    all_parts.add_reflector(reflector.Reflector(kube, api_resources.PODS, dict, known))
    all_parts.add_service(Service("hub", diary), Service("recorder", diary))
    await all_parts.start()
    await all_parts.stop()
    await all_parts.stop()
    assert diary == [
        "start hub",
        "start recorder",
        "start one with 3",
        "start two with 3",
        "stop two",
        "stop one",
        "stop recorder",
        "stop hub",
    ]


async def test_caches_that_do_not_fill_are_named(
    kube: client.Client, server: scripted_objects.Objects
) -> None:
    server.refuse = aiohttp.web.json_response(
        {"code": 404, "reason": "NotFound", "message": "no such kind"}, status=404
    )
    diary: list[str] = []
    all_parts = manager.Manager()
    known: cache.Cache[dict[str, Any]] = cache.Cache()
    all_parts.add_service(Service("hub", diary))
    all_parts.add_reflector(reflector.Reflector(kube, kinds.TASKS, dict, known))
    all_parts.add_controller(Loop("one", diary, known))
    with pytest.raises(errors.NotSynced, match=r"tasks\.kilnwork\.dev: no such kind"):
        await all_parts.start(sync_timeout_s=1.0)  # the server must have responded
    assert diary == ["start hub", "stop hub"]


async def test_failing_part_stops_the_started_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary: list[str] = []
    all_parts = manager.Manager()
    all_parts.add_service(
        Service("one", diary), Service("two", diary, fails=True), Service("three", diary)
    )
    with pytest.raises(errors.KubeError, match="no"):
        await all_parts.start()
    assert diary == ["start one", "start two", "stop two", "stop one"]
    assert "a part did not stop cleanly" in caplog.messages
