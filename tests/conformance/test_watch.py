"""Watches: what was and what comes, in which words, from where, for how long."""

import base64
import contextlib
import json
from typing import Any

import pytest

from support import kube_servers

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/tasks"
INITIAL = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
OURS = "metadata.name!=kube-root-ca.crt"
FUTURE = "999999999"
NOT_FOR_WATCH = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
NEEDS_MATCH = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"


class Collection:
    """A collection of a built-in or a custom kind."""

    def __init__(self, http: kube_servers.Http, path: str) -> None:
        self.http = http
        self.path = path
        self.custom = "kilnwork.dev" in path
        self.kind = "Task" if self.custom else "ConfigMap"

    def make(self, name: str, **labels: str) -> Any:
        body: dict[str, Any] = {"metadata": {"name": name, "labels": labels}}
        if self.custom:
            more = {"apiVersion": "kilnwork.dev/v1alpha1", "spec": {"command": ["true"]}}
            body |= {"kind": "Task", **more}
        return self.http.post(self.path, body).ok()

    def label(self, name: str, **labels: str | None) -> Any:
        return self.http.patch(f"{self.path}/{name}", {"metadata": {"labels": labels}}).ok()

    def delete(self, name: str) -> None:
        self.http.delete(f"{self.path}/{name}").ok()

    def version(self) -> str:
        """The resourceVersion of a list now."""
        return str(self.http.get(self.path).ok()["metadata"]["resourceVersion"])

    def watch(self, **query: object) -> contextlib.AbstractContextManager[kube_servers.Watch]:
        query.setdefault("fieldSelector", OURS)
        return self.http.watch(self.path, headers=None, **query)


@pytest.fixture(params=["built-in", "custom"])
def things(request: pytest.FixtureRequest, admin: kube_servers.Http, namespace: str) -> Collection:
    path = CONFIG_MAPS if request.param == "built-in" else TASKS
    return Collection(admin, path.format(namespace))


def causes(response: kube_servers.Response) -> list[str]:
    assert (response.status, response.reason) == (422, "Invalid")
    assert response.json["details"]["kind"] == "ListOptions"
    return [f"{cause['field']}: {cause['message']}" for cause in response.json["details"]["causes"]]


def test_watch_continues_after_a_list(things: Collection) -> None:
    """From its resourceVersion on, each with the version of the write; objects have their type."""
    things.make("a")
    with things.watch(resourceVersion=things.version()) as watch:
        made = things.make("b")
        changed = things.label("b", x="1")
        things.delete("b")
        seen = [watch.next() for _ in range(3)]
    assert [change.type for change in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert {change.name for change in seen} == {"b"}
    assert {change.object["kind"] for change in seen} == {things.kind}
    versions = [change.object["metadata"]["resourceVersion"] for change in seen]
    assert versions[:2] == [x["metadata"]["resourceVersion"] for x in (made, changed)]
    assert int(versions[2]) > int(versions[1])
    assert seen[2].object["metadata"]["labels"] == {"x": "1"}


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_watch_without_version_sends_existing_objects_first(
    things: Collection, query: dict[str, str]
) -> None:
    things.make("a")
    things.make("b")
    with things.watch(**query) as watch:
        assert sorted(watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        things.delete("a")
        assert watch.take(1) == [("DELETED", "a")]


def test_watch_resumes_where_another_ended(things: Collection) -> None:
    """Nothing is missed and nothing comes twice."""
    with things.watch() as watch:
        things.make("a")
        last = watch.next().object["metadata"]["resourceVersion"]
    things.make("b")
    things.delete("a")
    with things.watch(resourceVersion=last) as watch:
        assert watch.take(2) == [("ADDED", "b"), ("DELETED", "a")]


def test_selector_turns_changes_into_added_and_deleted(things: Collection) -> None:
    """What begins to match is ADDED, what no longer matches is DELETED, in its last state."""
    things.make("a", x="no")
    with things.watch(resourceVersion=things.version(), labelSelector="x=yes") as watch:
        things.label("a", x="yes")
        things.label("a", y="1")
        things.label("a", x="no", y=None)
        things.label("a", x="never")
        things.label("a", x="yes")
        things.delete("a")
        seen = [watch.next() for _ in range(5)]
    assert [change.type for change in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert seen[2].object["metadata"]["labels"] == {"x": "yes", "y": "1"}
    versions = [int(change.object["metadata"]["resourceVersion"]) for change in seen]
    assert versions == sorted(set(versions))


def test_watch_of_one_object_by_name(things: Collection) -> None:
    """As `kubectl get NAME --watch` does."""
    things.make("a")
    with things.watch(fieldSelector="metadata.name=a") as watch:
        things.make("b")
        things.delete("a")
        assert watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


def test_timeout_ends_the_stream(things: Collection) -> None:
    """The stream ends, with nothing said."""
    things.make("a")
    with things.watch(timeoutSeconds="1") as watch:
        assert [(change.type, change.name) for change in watch.rest()] == [("ADDED", "a")]


def test_response_starts_before_the_first_change(things: Collection) -> None:
    """A client knows at once that its watch is open."""
    with things.watch(resourceVersion=things.version()) as watch:
        assert watch.headers["Content-Type"] == "application/json"
        assert watch.headers["Transfer-Encoding"] == "chunked"


def test_initial_events_end_with_a_bookmark(things: Collection) -> None:
    """Which says so in an annotation, and has the version from which on changes come."""
    things.make("a")
    now = things.version()
    with things.watch(**INITIAL) as watch:
        assert watch.take(1) == [("ADDED", "a")]
        mark = watch.next()
        assert mark.type == "BOOKMARK"
        assert mark.object["kind"] == things.kind
        annotations = mark.object["metadata"]["annotations"]
        assert annotations["k8s.io/initial-events-end"] == "true"
        blueprint = annotations["kubernetes.io/initial-events-list-blueprint"]
        empty = json.loads(base64.b64decode(blueprint))
        assert (empty["kind"], empty["items"] or []) == (f"{things.kind}List", [])
        assert int(mark.object["metadata"]["resourceVersion"]) >= int(now)
        things.make("b")
        assert watch.take(1) == [("ADDED", "b")]


def test_without_initial_events_watch_starts_now(things: Collection) -> None:
    """`false` begins at now, whatever there is, and marks nothing."""
    things.make("a")
    query = {**INITIAL, "sendInitialEvents": "false"}
    with things.watch(**query, resourceVersion=things.version()) as watch:
        things.make("b")
        assert watch.take(1) == [("ADDED", "b")]


@pytest.mark.parametrize("version", [{}, {"resourceVersion": "0"}])
def test_without_initial_events_and_version_watch_starts_now(
    things: Collection, version: dict[str, str]
) -> None:
    """Begins at now too, and tells nothing of what was before."""
    things.make("a")
    things.label("a", x="1")
    query = {**INITIAL, "sendInitialEvents": "false", **version}
    with things.watch(**query, labelSelector="x") as watch:
        things.make("b", x="1")
        assert watch.take(1) == [("ADDED", "b")]


def test_initial_events_of_future_version_give_error(things: Collection) -> None:
    """An ERROR, after some seconds at most."""
    with things.watch(**INITIAL, resourceVersion=FUTURE) as watch:
        [change] = watch.rest()
    assert (change.type, change.object["code"]) == ("ERROR", 504)
    assert change.object["message"].startswith(f"Timeout: Too large resource version: {FUTURE}, ")


def test_initial_events_without_bookmarks_have_no_end_mark(things: Collection) -> None:
    """No client can see where they end."""
    things.make("a")
    query = {k: v for k, v in INITIAL.items() if k != "allowWatchBookmarks"}
    with things.watch(**query, timeoutSeconds="1") as watch:
        assert [change.type for change in watch.rest()] == ["ADDED"]


def test_bookmarks_are_sent_only_if_allowed(things: Collection) -> None:
    """They may come at any time, or never, and say only up to where all has been sent."""
    things.make("a")
    version = things.version()
    with things.watch(resourceVersion=version, timeoutSeconds="1") as watch:
        assert watch.rest() == []
    query = {"resourceVersion": version, "timeoutSeconds": "1", "allowWatchBookmarks": "true"}
    with things.watch(**query) as watch:
        for mark in watch.rest():
            assert mark.type == "BOOKMARK"
            assert set(mark.object) >= {"kind", "apiVersion", "metadata"}
            assert int(mark.object["metadata"]["resourceVersion"]) >= int(version)


def test_expired_version_gives_error_event(things: Collection) -> None:
    """200, then one ERROR with a 410 in it: clients list again."""
    things.make("a")
    things.http.server.forget()
    with things.watch(resourceVersion="1", timeoutSeconds="5") as watch:
        [change] = watch.rest()
    assert change.type == "ERROR"
    error = change.object
    assert (error["code"], error["reason"], error["status"]) == (410, "Expired", "Failure")
    assert error["message"].startswith("too old resource version: 1 (")


def test_expired_list_version_is_gone(things: Collection) -> None:
    """A list of a moment that is no longer kept is 410; so are pages, which bring a way on."""
    for name in ("a", "b", "c"):
        things.make(name)
    page = things.http.get(things.path, limit=2, fieldSelector=OURS).ok()["metadata"]
    things.make("d")
    things.http.server.forget()
    exact = {"resourceVersion": page["resourceVersion"], "resourceVersionMatch": "Exact"}
    response = things.http.get(things.path, **exact)
    assert (response.status, response.reason) == (410, "Expired")
    assert response.message == "The resourceVersion for the provided list is too old."
    response = things.http.get(things.path, limit=2, **{"continue": page["continue"]})
    assert (response.status, response.reason) == (410, "Expired")
    assert response.message.startswith(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response"
    )
    onward = response.json["metadata"]["continue"]
    rest = things.http.get(things.path, fieldSelector=OURS, **{"continue": onward}).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c", "d"]


def test_a_version_of_the_future_is_waited_for(things: Collection) -> None:
    """The watch opens and says nothing."""
    with things.watch(resourceVersion=FUTURE, timeoutSeconds="1") as watch:
        assert watch.rest() == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"resourceVersionMatch": "NotOlderThan"}, [f"Forbidden: {NOT_FOR_WATCH}"]),
        ({"sendInitialEvents": "true"}, [f"Forbidden: {NEEDS_MATCH}"]),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            [
                f"Forbidden: {NEEDS_MATCH}",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
    ],
)
def test_contradictory_watch_options_are_invalid(
    things: Collection, query: dict[str, str], expected: list[str]
) -> None:
    shown = causes(things.http.get(things.path, watch="1", **query))
    assert shown == [f"resourceVersionMatch: {cause}" for cause in expected]


def test_watches_are_json_only(things: Collection) -> None:
    headers = {"Accept": "application/yaml"}
    response = things.http.get(things.path, watch="1", headers=headers)
    assert response.status == 406
    assert b"only the following media types are accepted: application/json;stream=watch" in (
        response.body
    )


@pytest.mark.parametrize("value", ["0", "false", "False"])
def test_invalid_watch_requests_are_rejected(things: Collection, value: str) -> None:
    assert things.http.get(things.path, watch=value).ok()["kind"] == f"{things.kind}List"


def test_watch_sends_tables(things: Collection) -> None:
    """Each change is a Table of one row; only the first says what the columns are."""
    things.make("a")
    with things.http.watch(
        things.path, fieldSelector=OURS, headers={"Accept": kube_servers.TABLE}
    ) as watch:
        first = watch.next()
        things.make("b")
        second = watch.next()
    assert [first.type, second.type] == ["ADDED", "ADDED"]
    assert [change.object["kind"] for change in (first, second)] == ["Table", "Table"]
    assert first.object["columnDefinitions"][0]["name"] == "Name"
    assert [change.object["rows"][0]["cells"][0] for change in (first, second)] == ["a", "b"]
    assert not second.object["columnDefinitions"]


def test_watch_sends_partial_metadata(things: Collection) -> None:
    """With PartialObjectMetadata, as controllers of owners do."""
    things.make("a")
    headers = {"Accept": kube_servers.PARTIAL}
    with things.http.watch(things.path, fieldSelector=OURS, headers=headers) as watch:
        change = watch.next()
    assert (change.type, change.name) == ("ADDED", "a")
    assert (change.object["kind"], change.object["apiVersion"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
    )
    query = {**INITIAL, "fieldSelector": OURS}
    with things.http.watch(things.path, headers=headers, **query) as watch:
        mark = watch.until(lambda change: change.type == "BOOKMARK")
    assert mark.object["kind"] == "PartialObjectMetadata"
    assert mark.object["apiVersion"] == "meta.k8s.io/v1"


def test_watch_across_namespaces(things: Collection) -> None:
    everywhere = things.path.split("/namespaces/")[0] + "/" + things.path.rpartition("/")[2]
    mine = f"metadata.namespace={things.path.split('/')[-2]},{OURS}"
    with things.http.watch(everywhere, fieldSelector=mine) as watch:
        things.make("a")
        assert watch.take(1) == [("ADDED", "a")]


def test_many_watchers_see_the_same_changes(things: Collection) -> None:
    start = things.version()
    with contextlib.ExitStack() as stack:
        watches = [stack.enter_context(things.watch(resourceVersion=start)) for _ in range(5)]
        for i in range(10):
            things.make(f"n{i}")
        seen = [watch.take(10) for watch in watches]
    assert seen == [[("ADDED", f"n{i}") for i in range(10)]] * 5
