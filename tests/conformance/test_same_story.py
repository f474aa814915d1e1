"""Random stories of requests: both servers response them alike.

With `--server real` ours runs beside it, and each response is compared: status, reason, message,
causes, warnings, the object with its managedFields. On ours alone nothing may end as an internal
error. What a story is: `support/stories`; the seed of a failure is in the name of the case, and
KILN_STORIES=FIRST:LAST plays others.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from conformance import test_crds
from support import kube_servers, stories, story_players, waiting
from support.kube_servers import CRDS

GROUP = "stories.test"
KINDS = stories.kinds(GROUP)
STEPS = 20
FIRST, LAST = (int(n) for n in os.environ.get("KILN_STORIES", "0:18").split(":"))


def serve_widgets(admin: kube_servers.Http) -> None:
    body = test_crds.definition(GROUP)
    assert admin.post(CRDS, body).status in (201, 409)
    path = f"/apis/{GROUP}/v1/widgets"
    waiting.wait_until(lambda: admin.get(path).status == 200, what=f"{path} is served")


@pytest.fixture(scope="module")
def both_servers(
    server: kube_servers.Server,
    admin: kube_servers.Http,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[kube_servers.Http]]:
    """The administrators of the server under test and, if that is the real one, of ours."""
    serve_widgets(admin)
    if server.kind == "ours":
        yield [admin]
        return
    with kube_servers.ours(tmp_path_factory.mktemp("beside")) as ours, ours.admin() as other:
        serve_widgets(other)
        yield [admin, other]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_story_is_the_same_on_both_servers(
    both_servers: list[kube_servers.Http], namespace: str, seed: int
) -> None:
    """Step by step, until the two are no longer in the same state."""
    root = f"/api/v1/namespaces/{namespace}"
    for admin in both_servers:
        admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for made in (f"{root}/serviceaccounts/default", f"{root}/configmaps/kube-root-ca.crt"):
            waiting.wait_until(_exists(admin, made), what=f"{made} is made")
    players = [story_players.Player(admin, namespace) for admin in both_servers]
    kind = KINDS[seed % len(KINDS)]
    for step in stories.Writer(seed, kind).story(STEPS):
        responses = [player.play(step) for player in players]
        assert all(_is_no_internal_error(response) for response in responses), stories.shown(step)
        if len({response["status"] < 300 for response in responses}) > 1 and kind.ours:
            return  # rules that ours checks by itself, and a cluster by an admission policy
        shown = story_players.comparable(responses, kind)
        assert shown[0] == shown[-1], stories.shown(step)


def _exists(admin: kube_servers.Http, path: str) -> Any:
    return lambda: admin.get(path).status == 200


def _is_no_internal_error(response: dict[str, Any]) -> bool:
    return "see the server's log" not in json.dumps(response["body"])
