"""Short watches that resume one after another see the same as one long watch."""

import random
import time
from concurrent import futures
from typing import Any

import pytest

from support import kube_servers

WRITERS = 3
WRITE_S = 6.0
DEADLINE_S = 60.0
LAST = "last"
Seen = list[tuple[str, str, str]]

SELECTIONS: dict[str, dict[str, str]] = {
    "all": {"fieldSelector": "metadata.name!=kube-root-ca.crt"},
    "selected": {"labelSelector": "x=a"},
}


def summarize(change: kube_servers.Change) -> tuple[str, str, str]:
    return change.type, change.name, change.object["metadata"]["resourceVersion"]


class Writer:
    """Creates, changes and deletes one ConfigMap, with pauses of random length."""

    def __init__(self, server: kube_servers.Server, path: str, name: str, seed: int) -> None:
        self._server = server
        self._path = path
        self._name = name
        self._random = random.Random(seed)

    def run(self) -> None:
        end = time.monotonic() + WRITE_S
        one = f"{self._path}/{self._name}"
        there = False
        with self._server.admin() as http:
            while time.monotonic() < end:
                labels = {"x": self._random.choice("ab"), "y": str(self._random.random())}
                metadata = {"name": self._name, "labels": labels}
                if not there:
                    http.post(self._path, {"metadata": metadata}).ok()
                    there = True
                elif self._random.random() < 0.2:
                    http.delete(one).ok()
                    there = False
                else:
                    http.patch(one, {"metadata": {"labels": labels}}).ok()
                time.sleep(self._random.choice((0, 0, self._random.uniform(0, 0.02))))


def follow_with_watches(
    server: kube_servers.Server,
    path: str,
    start: str,
    *,
    bookmarks: bool,
    selection: dict[str, str],
) -> Seen:
    """All changes before that of `LAST`, by watches of a second that each go on from the last
    version that the one before has brought."""
    seen: Seen = []
    version = start
    end = time.monotonic() + DEADLINE_S
    query: dict[str, Any] = {**selection, "timeoutSeconds": 1}
    if bookmarks:
        query["allowWatchBookmarks"] = "true"
    with server.admin() as http:
        while time.monotonic() < end:
            with http.watch(path, **query, resourceVersion=version) as watch:
                for change in watch.rest():
                    assert change.type != "ERROR", change
                    version = change.object["metadata"]["resourceVersion"]
                    if change.type == "BOOKMARK":
                        continue
                    if change.name == LAST:
                        return seen
                    seen.append(summarize(change))
    raise AssertionError(f"{LAST} was not seen within {DEADLINE_S} s; {len(seen)} others were")


def history_of_one_watch(
    http: kube_servers.Http, path: str, start: str, selection: dict[str, str]
) -> Seen:
    """All changes before that of `LAST`, by one watch."""
    seen: Seen = []
    query: dict[str, Any] = {**selection, "resourceVersion": start}
    with http.watch(path, **query) as watch:
        while (change := watch.next()).name != LAST:
            seen.append(summarize(change))
    return seen


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("seed", range(2))
def test_short_watches_miss_no_change(
    server: kube_servers.Server, admin: kube_servers.Http, namespace: str, seed: int
) -> None:
    """With and without bookmarks, of everything and of what a label selects."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    start = admin.get(path).ok()["metadata"]["resourceVersion"]
    cases = [(what, bookmarks) for what in SELECTIONS for bookmarks in (True, True, True, False)]
    writers = [Writer(server, path, f"w{i}", seed * 10 + i) for i in range(WRITERS)]
    with futures.ThreadPoolExecutor(len(cases) + WRITERS) as pool:
        followers = []
        for what, bookmarks in cases:
            selection = SELECTIONS[what]
            followers.append(
                pool.submit(
                    follow_with_watches,
                    server,
                    path,
                    start,
                    bookmarks=bookmarks,
                    selection=selection,
                )
            )
            time.sleep(0.13)  # so that they do not end together
        for running in [pool.submit(writer.run) for writer in writers]:
            running.result()
        admin.post(path, {"metadata": {"name": LAST, "labels": {"x": "a"}}}).ok()
        found = [follower.result() for follower in followers]
    for what, selection in SELECTIONS.items():
        whole = history_of_one_watch(admin, path, start, selection)
        assert len(whole) > 20
        for (other, bookmarks), seen in zip(cases, found, strict=True):
            if other == what:
                missed = [change for change in whole if change not in set(seen)]
                assert seen == whole, f"{what}, {bookmarks=}: missed {missed}"
