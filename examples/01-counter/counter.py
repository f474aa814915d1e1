"""Counts to a limit: every task creates the next, with only the Kubernetes API.

Reads TASK_NAME and TASK_NAMESPACE, gets that Task and the TaskObject it names. If count has reached
limit it ends. Otherwise it creates the TaskObject `<task>-output` with count + 1, and the Task
`task-<count + 1>` that runs this program on it.

Two things make it safe to run twice, which any task may be after a crash: names are derived from
the count, and "already exists" is success. While the API server is down it tries again.
"""

import http.client
import json
import os
import ssl
import sys
import time
from urllib.parse import urlsplit

API = "/apis/kilnwork.dev/v1alpha1"
PATIENCE_S = 60.0


class Cluster:
    """The API server of KUBECONFIG, over one connection that is kept open."""

    def __init__(self, kubeconfig: str) -> None:
        with open(kubeconfig, encoding="utf-8") as file:
            config = json.load(file)
        cluster = config["clusters"][0]["cluster"]
        self.address = urlsplit(cluster["server"])
        self.context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.token_file = config["users"][0]["user"]["tokenFile"]
        self.connection: http.client.HTTPSConnection | None = None

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        """Send one request, repeated while the server is down; 409 on a create counts as done."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                status, response = self.once(method, path, body)
            except OSError as error:
                status, response = 503, {"message": str(error)}
            except http.client.HTTPException as error:
                status, response = 503, {"message": repr(error)}
            if status in (200, 201) or (method == "POST" and status == 409):
                return response
            retry = status == 429 or status >= 500
            if not retry or time.monotonic() > deadline:
                sys.exit(f"{method} {path}: {status} {response.get('message', '')}")
            self.connection = None
            time.sleep(0.1)

    def once(self, method: str, path: str, body: dict | None) -> tuple[int, dict]:
        if self.connection is None:
            host, port = self.address.hostname or "", self.address.port
            self.connection = http.client.HTTPSConnection(
                host, port, timeout=10, context=self.context
            )
        with open(self.token_file, encoding="utf-8") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        headers["Content-Type"] = "application/json"
        self.connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")


def main() -> None:
    name, namespace = os.environ["TASK_NAME"], os.environ["TASK_NAMESPACE"]
    cluster = Cluster(os.environ["KUBECONFIG"])
    here = f"{API}/namespaces/{namespace}"
    task = cluster.call("GET", f"{here}/tasks/{name}")
    data = cluster.call("GET", f"{here}/taskobjects/{task['spec']['inputObject']}")["data"]
    count, limit = int(data["count"]), int(data["limit"])
    if count >= limit:
        print(f"{name}: reached {limit}")
        return
    print(f"{name}: {count} of {limit}")
    kind = {"apiVersion": "kilnwork.dev/v1alpha1"}
    output = f"{name}-output"
    cluster.call(
        "POST",
        f"{here}/taskobjects",
        {
            **kind,
            "kind": "TaskObject",
            "metadata": {"name": output},
            "data": {"count": str(count + 1), "limit": str(limit)},
        },
    )
    spec = {
        key: task["spec"][key]
        for key in ("clusterName", "image", "command", "args")
        if key in task["spec"]
    }
    cluster.call(
        "POST",
        f"{here}/tasks",
        {
            **kind,
            "kind": "Task",
            "metadata": {"name": f"task-{count + 1}"},
            "spec": {**spec, "inputObject": output},
        },
    )


if __name__ == "__main__":
    main()
