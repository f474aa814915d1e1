"""Rights on file jobs, by the roles that every namespace has."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from support import up_server

LINE = b'{"id":"1","value1":1,"value2":2,"op":"+"}\n'

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_server.UpServer]:
    with up_server.serving(tmp_path_factory.mktemp("rights"), slots=1) as made:
        for role in ("view", "edit"):
            made.kubectl("create", "serviceaccount", role)
            binding = ("create", "rolebinding", role, f"--clusterrole={role}")
            made.kubectl(*binding, f"--serviceaccount=default:{role}")
        yield made


def _status(
    server: up_server.UpServer, method: str, path: str, token: str, body: bytes | None = None
) -> int:
    request = urllib.request.Request(
        server.http + path, body, {"Authorization": f"Bearer {token}"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return int(json.loads(error.read())["status"])


@pytest.mark.parametrize(
    ("method", "path", "body", "viewer", "editor"),
    [
        ("GET", "/jobs", None, 200, 200),
        ("GET", "/jobs/none", None, 404, 404),
        ("POST", "/jobs", LINE, 403, 202),
        ("POST", "/files", LINE, 403, 201),
        ("POST", "/jobs/none/cancel", b"", 403, 404),
        ("DELETE", "/jobs/none", None, 403, 404),
        ("GET", "/jobs?namespace=kube-system", None, 403, 403),
    ],
)
def test_roles_limit_the_jobs_api(
    server: up_server.UpServer,
    method: str,
    path: str,
    body: bytes | None,
    viewer: int,
    editor: int,
) -> None:
    tokens = [server.kiln("token", role).stdout.strip() for role in ("view", "edit")]
    found = tuple(_status(server, method, path, token, body) for token in tokens)
    assert found == (viewer, editor)


def test_anonymous_client_has_no_access(server: up_server.UpServer) -> None:
    assert _status(server, "GET", "/jobs", "nonsense") == 401
