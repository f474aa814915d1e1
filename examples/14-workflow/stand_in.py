"""Plays Argo: runs the one container of each Workflow here, and writes its status."""

import base64
import contextlib
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/default/workflows"
KUBECONFIG = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
CLUSTER, USER = KUBECONFIG["clusters"][0]["cluster"], KUBECONFIG["users"][0]["user"]
AUTHORITY = base64.b64decode(CLUSTER["certificate-authority-data"]).decode()


def send(method: str, path: str, body: Any = None) -> Any:
    headers = {
        "Authorization": f"Bearer {USER['token']}",
        "Content-Type": "application/merge-patch+json",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(CLUSTER["server"] + path, data, headers, method=method)
    return urllib.request.urlopen(request, context=ssl.create_default_context(cadata=AUTHORITY))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def run(workflow: dict[str, Any]) -> None:
    """Run a Workflow of one container from its beginning to its end."""
    path, spec = f"{WORKFLOWS}/{workflow['metadata']['name']}", workflow["spec"]
    status: dict[str, Any] = {"phase": "Running", "startedAt": now(), "finishedAt": None}
    send("PATCH", path, {"status": status})
    main = next(one for one in spec["templates"] if one["name"] == spec["entrypoint"])
    code = subprocess.run(main["container"]["command"], check=False).returncode
    status |= {"phase": "Failed" if code else "Succeeded", "finishedAt": now()}
    found = []
    for one in main["outputs"]["parameters"] if code == 0 else ():
        file = Path(one["valueFrom"]["path"])
        found.append({"name": one["globalName"], "value": file.read_text().strip()})
        file.unlink()
    status["outputs"] = {"parameters": found}
    send("PATCH", path, {"status": status})


while True:  # a server ends a watch now and then
    for line in send("GET", f"{WORKFLOWS}?watch=1"):
        change = json.loads(line)
        if change["type"] == "ADDED" and "status" not in change["object"]:
            with contextlib.suppress(urllib.error.HTTPError):  # it is gone
                run(change["object"])
