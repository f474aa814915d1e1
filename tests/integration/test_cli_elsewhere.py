"""`kiln` against an API server without our kinds: a cluster in which nothing is installed yet."""

import json
import threading
from collections.abc import Iterator
from http import server
from pathlib import Path

import pytest

from kilnwork.cli import exits, main


class Bare(server.BaseHTTPRequestHandler):
    """Respond as kube-apiserver does below a group that it does not serve."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"404 page not found\n")

    do_POST = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with server.ThreadingHTTPServer(("127.0.0.1", 0), Bare) as listening:
        threading.Thread(target=listening.serve_forever).start()
        config = {
            "clusters": [
                {
                    "name": "bare",
                    "cluster": {"server": f"http://127.0.0.1:{listening.server_port}"},
                }
            ],
            "users": [{"name": "bare", "user": {}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
            "current-context": "bare",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield
        listening.shutdown()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "command", ["get tasks", "run -- true", "why a", "delete task a", "wait task/a --for delete"]
)
def test_missing_kinds_error_names_the_install_command(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main.main(command.split())
    output = capfd.readouterr().err
    assert (code, "`kiln install | kubectl apply -f -`" in output) == (
        exits.Exit.UNREACHABLE,
        True,
    ), output
