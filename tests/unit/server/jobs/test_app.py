"""The fast route lookup for frequent paths gives the same result as the table."""

import itertools
import types
from typing import Any, cast

import pytest
from starlette import routing

from kilnwork.server.jobs import app, http_resource_base, upload_handlers

NOTHING: Any = cast("Any", None)
"""No handler is called."""
SHARED: Any = types.SimpleNamespace(store=None, settings=None, room=None)
JOB, JOBS = "/jobs/{job}", "/jobs"


def by_table(path: str) -> tuple[str, dict[str, str]] | None:
    """Return the first matching path of the table and its parameters."""
    for known in app.make_resources(NOTHING, upload_handlers.Files(SHARED)):
        scope = {"type": "http", "path": path, "method": "GET"}
        match, found = routing.Route(known, http_resource_base.Resource({})).matches(scope)
        if match is not routing.Match.NONE:
            return known, found["path_params"]
    return None


PATHS = (
    ("", "/", "//", "/jobs", "/jobs/", "/jobs//", "/jobs/a", "/jobs/a/", "/jobs//a", "//jobs/a"),
    ("/jobs/openapi.json", "/jobs/openapi.json/", "/jobs/openapi", "/jobs/a/results", "/jobsa"),
    ("/jobs/a b", "/jobs/{job}", "/jobs/ä", "/jobs/a\nb", "/jobs/a\n", "/jobs\n", "/jobs/\n"),
    (
        "/files",
        "/files/a",
        "/files/jobs/a",
        "/x/jobs",
        "/x/jobs/a",
        "jobs/a",
        "/jobs/.",
        "/jobs/..",
    ),
)


@pytest.mark.parametrize("path", [*itertools.chain.from_iterable(PATHS)])
def test_frequent_path_is_routed_as_in_the_table(path: str) -> None:
    short = app.match_frequent_path(path)
    if short is not None:  # else the table is asked
        assert by_table(path) == (JOB if short else JOBS, short)


def test_frequent_paths_are_matched_without_router() -> None:
    assert app.match_frequent_path("/jobs") == {}
    assert app.match_frequent_path("/jobs/2026-11-1") == {"job": "2026-11-1"}
