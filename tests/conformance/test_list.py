"""Lists: pages, the moment they show, and options that make no sense."""

import base64
import json
from typing import Any

import pytest

from support import kube_servers

pytestmark = pytest.mark.usefixtures("history")

TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/tasks"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
TOO_NEW = "999999999"


@pytest.fixture(params=["built-in", "custom"])
def path(request: pytest.FixtureRequest, admin: kube_servers.Http, namespace: str) -> str:
    """A collection of five objects, c0 to c4, of a built-in and of a custom kind."""
    if request.param == "built-in":
        found = CONFIG_MAPS.format(namespace)
        made: dict[str, Any] = {"data": {"a": "b"}}
    else:
        found = TASKS.format(namespace)
        made = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "Task",
            "spec": {"command": ["true"]},
        }
    for i in range(5):
        admin.post(found, {**made, "metadata": {"name": f"c{i}", "labels": {"n": str(i)}}}).ok()
    assert len(names(admin.get(found).ok())) == 5  # and now the server's memory has them, too
    return found


def names(listed: Any) -> list[str]:
    return [i["metadata"]["name"] for i in listed["items"] if i["metadata"]["name"][0] == "c"]


def causes_of(response: kube_servers.Response) -> list[str]:
    found = response.json
    assert (response.status, found["reason"]) == (422, "Invalid")
    assert {k: found["details"].get(k) for k in ("name", "group", "kind")} == {
        "name": None,
        "group": "meta.k8s.io",
        "kind": "ListOptions",
    }
    assert response.message.startswith('ListOptions.meta.k8s.io "" is invalid: ')
    return [f"{cause['field']}: {cause['message']}" for cause in found["details"]["causes"]]


def test_pages_show_one_snapshot(admin: kube_servers.Http, path: str) -> None:
    """The first page's resourceVersion holds for all; what is made in between is not seen."""
    first = admin.get(path, limit=2).ok()
    assert names(first) == ["c0", "c1"]
    assert first["metadata"]["remainingItemCount"] in (3, 4)  # kube-root-ca.crt is a ConfigMap
    extra = admin.get(f"{path}/c0").ok()
    extra["metadata"] = {"name": "c1a"}
    admin.post(path, extra).ok()
    admin.delete(f"{path}/c3").ok()
    second = admin.get(path, limit=2, **{"continue": first["metadata"]["continue"]}).ok()
    assert names(second) == ["c2", "c3"]
    rest = admin.get(path, limit=50, **{"continue": second["metadata"]["continue"]}).ok()
    assert names(rest) == ["c4"]
    assert not rest["metadata"].get("continue")
    assert "remainingItemCount" not in rest["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, rest)}) == 1
    assert names(admin.get(path).ok()) == ["c0", "c1", "c1a", "c2", "c4"]


def test_remaining_item_count_is_omitted_with_a_selector(
    admin: kube_servers.Http, path: str
) -> None:
    """Its count would be of what does not match, too."""
    page = admin.get(path, limit=1, labelSelector="n!=1").ok()
    assert "remainingItemCount" not in page["metadata"]
    assert page["metadata"]["continue"]
    assert names(page) == ["c0"]


def test_pages_with_a_selector_are_full(admin: kube_servers.Http, path: str) -> None:
    """A page is full although others lie between."""
    first = admin.get(path, limit=2, labelSelector="n in (0,3,4)").ok()
    assert names(first) == ["c0", "c3"]
    token = first["metadata"]["continue"]
    rest = admin.get(path, limit=2, labelSelector="n in (0,3,4)", **{"continue": token}).ok()
    assert names(rest) == ["c4"]


def test_version_0_ignores_the_limit(admin: kube_servers.Http, path: str) -> None:
    """With all there is, whatever the limit: what client-go lists first."""
    for match in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        listed = admin.get(path, limit=1, resourceVersion="0", **match).ok()
        assert not listed["metadata"].get("continue")
        assert set(names(listed)) <= {"c0", "c1", "c2", "c3", "c4"}
        assert len(listed["items"]) != 1


def test_get_with_future_version_times_out(admin: kube_servers.Http, path: str) -> None:
    """A GET may name a version too, and is 504 until that is reached."""
    assert admin.get(f"{path}/c0", resourceVersion="0").ok()["metadata"]["name"] == "c0"
    response = admin.get(f"{path}/c0", resourceVersion=TOO_NEW)
    assert (response.status, response.reason) == (504, "Timeout")


def test_negative_limit_means_no_limit(admin: kube_servers.Http, path: str) -> None:
    assert len(names(admin.get(path, limit=-1).ok())) == 5


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("x", "illegal base64 data at input byte 0"),
        ("e30=", "illegal base64 data at input byte 3"),
        ("e30", "server does not recognize this encoded version "),
        (
            base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","start":"c"}').decode().rstrip("="),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
    ],
)
def test_corrupt_continue_token_is_a_bad_request(
    admin: kube_servers.Http, namespace: str, token: str, why: str
) -> None:
    response = admin.get(CONFIG_MAPS.format(namespace), **{"continue": token})
    assert (response.status, response.reason) == (400, "BadRequest")
    assert response.message == f"invalid continue token: continue key is not valid: {why}"


def test_continue_excludes_resource_version(admin: kube_servers.Http, path: str) -> None:
    first = admin.get(path, limit=1).ok()["metadata"]
    both = {"continue": first["continue"], "resourceVersion": first["resourceVersion"]}
    response = admin.get(path, **both)
    assert response.status == 400
    assert response.message == "specifying resource version is not allowed when using continue"


def test_exact_version_lists_earlier_state(admin: kube_servers.Http, path: str) -> None:
    """So does any version with a limit; without both the response is at least that new."""
    then = admin.get(path).ok()["metadata"]["resourceVersion"]
    admin.delete(f"{path}/c0").ok()
    exact = admin.get(path, resourceVersion=then, resourceVersionMatch="Exact").ok()
    assert len(names(exact)) == 5
    assert exact["metadata"]["resourceVersion"] == then
    paged = admin.get(path, resourceVersion=then, limit=3).ok()
    assert (names(paged), paged["metadata"]["resourceVersion"]) == (["c0", "c1", "c2"], then)
    for match in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        newer = admin.get(path, resourceVersion=then, **match).ok()
        assert int(newer["metadata"]["resourceVersion"]) >= int(then)
    assert len(names(admin.get(path).ok())) == 4


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "NotOlderThan"}])
def test_list_with_future_version_times_out(
    admin: kube_servers.Http, namespace: str, match: dict[str, str]
) -> None:
    """504 with a cause that clients look for; they ask again."""
    response = admin.get(CONFIG_MAPS.format(namespace), resourceVersion=TOO_NEW, **match)
    assert (response.status, response.reason) == (504, "Timeout")
    assert response.message.startswith(f"Timeout: Too large resource version: {TOO_NEW}, current: ")
    assert response.json["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


@pytest.mark.parametrize("version", ["x", "-1", "1.5"])
def test_non_numeric_version_is_a_bad_request(
    admin: kube_servers.Http, path: str, version: str
) -> None:
    """In the words of Go's parser."""
    response = admin.get(path, resourceVersion=version)
    assert (response.status, response.reason) == (400, "BadRequest")
    assert response.message == (
        f'invalid resource version: resourceVersion: Invalid value: "{version}": '
        f'strconv.ParseUint: parsing "{version}": invalid syntax'
    )


@pytest.mark.parametrize(
    ("query", "causes"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            ["Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"],
        ),
        (
            {"resourceVersionMatch": "Foo", "resourceVersion": "1"},
            ['Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""'],
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            ['Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'],
        ),
        (
            {"resourceVersionMatch": "Foo", "continue": "x"},
            [
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
            ],
        ),
    ],
)
def test_contradictory_list_options_are_invalid(
    admin: kube_servers.Http, path: str, query: dict[str, str], causes: list[str]
) -> None:
    shown = causes_of(admin.get(path, **query))
    assert shown == [f"resourceVersionMatch: {cause}" for cause in causes]


def test_send_initial_events_is_invalid_for_lists(admin: kube_servers.Http, path: str) -> None:
    assert causes_of(admin.get(path, sendInitialEvents="true")) == [
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    ]


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds"])
@pytest.mark.parametrize("value", ["x", "", "1.5"])
def test_non_numeric_options_are_bad_requests(
    admin: kube_servers.Http, namespace: str, name: str, value: str
) -> None:
    """400 in the words of Go's parser."""
    response = admin.get(CONFIG_MAPS.format(namespace), **{name: value})
    assert response.status == 400
    assert response.message == f'strconv.ParseInt: parsing "{value}": invalid syntax'


def test_list_items_of_built_in_kinds_have_no_type(admin: kube_servers.Http, path: str) -> None:
    """Those of custom kinds come with it, and their lists always have a `continue`."""
    listed = admin.get(path).ok()
    custom = "kilnwork.dev" in path
    assert listed["kind"] == ("TaskList" if custom else "ConfigMapList")
    assert all(
        ("kind" in item, "apiVersion" in item) == (custom, custom) for item in listed["items"]
    )
    assert listed["metadata"].get("continue") == ("" if custom else None)


def test_lists_are_ordered_by_namespace_and_name(admin: kube_servers.Http, path: str) -> None:
    """Also across namespaces, page by page."""
    for i in range(5):
        admin.patch(f"{path}/c{i}", {"metadata": {"labels": {"ordered": "yes"}}}).ok()
    everywhere = f"{path.split('/namespaces/')[0]}/{path.rpartition('/')[2]}"
    seen: list[tuple[str, str]] = []
    token: dict[str, str] = {}
    while True:
        page = admin.get(everywhere, limit=3, labelSelector="ordered", **token).ok()
        seen += [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in page["items"]]
        token = {"continue": page["metadata"].get("continue", "")}
        if not token["continue"]:
            break
    assert seen == sorted(seen)
    ours = [name for namespace, name in seen if f"/{namespace}/" in path and name[0] == "c"]
    assert ours == ["c0", "c1", "c2", "c3", "c4"]


def test_metadata_only_objects_and_lists(admin: kube_servers.Http, path: str) -> None:
    """PartialObjectMetadata of one, PartialObjectMetadataList of many, whichever is asked."""
    one = admin.get(f"{path}/c1", headers={"Accept": kube_servers.PARTIAL}).ok()
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert set(one) == {"kind", "apiVersion", "metadata"}
    many = admin.get(path, limit=2, headers={"Accept": kube_servers.PARTIAL_LIST}).ok()
    assert (many["kind"], many["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert names(many) == ["c0", "c1"]
    assert many["metadata"]["continue"]
    assert all("data" not in item and "spec" not in item for item in many["items"])


def test_partial_object_and_list_are_not_interchangeable(
    admin: kube_servers.Http, namespace: str
) -> None:
    """Nor the other way round: 406 that says what it is."""
    path = CONFIG_MAPS.format(namespace)
    for target, form, name, why in (
        (f"{path}/kube-root-ca.crt", kube_servers.PARTIAL_LIST, "List", "not a list"),
        (path, kube_servers.PARTIAL, "", "a list"),
    ):
        response = admin.get(target, headers={"Accept": form})
        assert (response.status, response.reason) == (406, "NotAcceptable")
        type_ = "*core.ConfigMap" if name else "*core.ConfigMapList"
        assert response.message == (
            f"you requested PartialObjectMetadata{name}, but the requested object is {why} "
            f"({type_})"
        )


def test_delete_collection_returns_deleted_objects(admin: kube_servers.Http, path: str) -> None:
    """Selectors hold; the others stay."""
    gone = admin.delete(path, labelSelector="n in (1,2)").ok()
    assert names(gone) == ["c1", "c2"]
    assert gone["kind"].endswith("List")
    assert names(admin.get(path).ok()) == ["c0", "c3", "c4"]
    part = admin.delete(path, labelSelector="n", limit=2).ok()
    assert names(part) == ["c0", "c3"]
    assert part["metadata"]["continue"]
    assert names(admin.get(path).ok()) == ["c4"]


def test_metadata_name_selects_one_object(admin: kube_servers.Http, path: str) -> None:
    """`metadata.name` selects on every kind."""
    assert names(admin.get(path, fieldSelector="metadata.name=c2").ok()) == ["c2"]
    assert json.loads(admin.get(path, fieldSelector="metadata.name=c9").body)["items"] == []
