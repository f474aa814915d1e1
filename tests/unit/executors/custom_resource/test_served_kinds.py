"""Which kinds an API server is asked for, and how often."""

import msgspec
import pytest

from kilnwork.executors import custom_resource
from kilnwork.executors.custom_resource import served_kinds
from kilnwork.kit import clock, http_types
from kilnwork.kube import errors

BOOKS = {
    "resources": [
        {
            "name": "books",
            "kind": "Book",
            "namespaced": True,
            "verbs": sorted(served_kinds._NEEDED),
        },
        {"name": "books/status", "kind": "Book", "namespaced": True, "verbs": ["get"]},
        {"name": "pages", "kind": "Page", "namespaced": True, "verbs": ["get", "list"]},
    ]
}


class Api:
    """Discovery of an API server: `pages` by path."""

    def __init__(self) -> None:
        self.pages: dict[str, object] = {}
        self.asked: list[str] = []

    async def raw(self, method: str, path: str) -> http_types.ClientResponse:
        self.asked.append(path)
        if path not in self.pages:
            raise errors.NotFound(404, "NotFound", "the server could not find it")
        return http_types.ClientResponse(200, "OK", msgspec.json.encode(self.pages[path]))


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


@pytest.fixture
def kinds(api: Api, time: clock.ManualClock) -> custom_resource.Kinds:
    allowed = custom_resource.AllowedKinds(["*"])
    return custom_resource.Kinds(api, allowed, time=time)  # type: ignore[arg-type]


async def test_missing_kind_is_requested_once_per_second(
    kinds: custom_resource.Kinds, api: Api, time: clock.ManualClock
) -> None:
    for _ in range(100):
        assert isinstance(await kinds.find("my.domain/v1", "Book"), served_kinds.Absent)
    assert api.asked == ["/apis/my.domain/v1", "/apis/my.domain"]
    api.pages["/apis/my.domain/v1"] = BOOKS
    time.advance(served_kinds.AGAIN_S)
    found = await kinds.find("my.domain/v1", "Book")
    assert found.qualified == "books.my.domain"  # type: ignore[union-attr]


async def test_served_kind_is_cached_until_forgotten(
    kinds: custom_resource.Kinds, api: Api
) -> None:
    api.pages["/apis/my.domain/v1"] = BOOKS
    found = await kinds.find("my.domain/v1", "Book")
    assert await kinds.find("my.domain/v1", "Book") == found
    assert len(api.asked) == 1
    kinds.forget(found)  # type: ignore[arg-type]
    assert await kinds.find("my.domain/v1", "Book") == found
    assert len(api.asked) == 2


async def test_a_kind_that_cannot_be_made_and_followed_is_none(
    kinds: custom_resource.Kinds, api: Api
) -> None:
    api.pages["/apis/my.domain/v1"] = BOOKS
    assert isinstance(await kinds.find("my.domain/v1", "Page"), served_kinds.Absent)


@pytest.mark.parametrize("odd", ["../../api/v1/namespaces/a/secrets?x=", "a/b/c", "", "/", "a/"])
async def test_malformed_api_version_is_never_part_of_a_url(
    kinds: custom_resource.Kinds, api: Api, odd: str
) -> None:
    assert isinstance(await kinds.find(odd, "Book"), served_kinds.Absent)
    assert api.asked == []


async def test_all_allowed_yields_only_namespaced_kinds(api: Api, time: clock.ManualClock) -> None:
    verbs = sorted(served_kinds._NEEDED)
    api.pages["/api/v1"] = {
        "resources": [
            {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": verbs},
            {"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": verbs},
        ]
    }
    api.pages["/apis"] = {
        "groups": [{"name": "my.domain", "versions": [{"groupVersion": "my.domain/v1"}]}]
    }
    shelf = {"name": "shelves", "kind": "Shelf", "namespaced": False, "verbs": verbs}
    api.pages["/apis/my.domain/v1"] = {"resources": [*BOOKS["resources"], shelf]}
    allowed = custom_resource.AllowedKinds(["configmaps", "namespaces", "*"])
    kinds = custom_resource.Kinds(api, allowed, time=time)  # type: ignore[arg-type]
    assert [one.kind async for one in kinds.all_allowed()] == ["ConfigMap", "Book"]
