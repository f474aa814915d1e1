"""A task that spawns children by its socket and waits for them; see `cluster.py`.

`parent.py COUNT`.
"""

import http.client
import json
import os
import socket
import sys


class Connection(http.client.HTTPConnection):
    """HTTP over the task's Unix socket."""

    def connect(self) -> None:
        """Connect to the task's socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["KILN_SOCKET"])


def ask(method: str, path: str, body: object = None) -> dict[str, str]:
    """Send one request; return its JSON."""
    connection = Connection("task")
    connection.request(method, path, None if body is None else json.dumps(body))
    response: dict[str, str] = json.loads(connection.getresponse().read())
    connection.close()
    return response


def main() -> None:
    """Spawn all children, then wait for all."""
    spec = {"command": ["true"]}
    children = [ask("POST", "/tasks", {"spec": spec})["id"] for _ in range(int(sys.argv[1]))]
    for child in children:
        state = ask("GET", f"/tasks/{child}?wait=600")["state"]
        if state != "Success":
            raise SystemExit(f"child {child} is {state}")


if __name__ == "__main__":
    main()
