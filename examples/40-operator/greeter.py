"""An operator: each Greeting gets a ConfigMap of its name, with the text of its greeting.

Uses plain HTTP, so that it needs no client library. Run it with KUBECONFIG set; it follows the
namespace `default` until it is terminated.
"""

import base64
import http.client
import json
import os
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import yaml

GREETINGS = "/apis/example.com/v1/namespaces/default/greetings"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class Kubernetes:
    """The API server and the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        found = yaml.safe_load(kubeconfig.read_text())
        cluster = found["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._url, self._token = cluster["server"], found["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cadata=authority)

    def send(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml"  # of which JSON is a part
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode() if body else None, headers, method=method
        )
        response: http.client.HTTPResponse = urllib.request.urlopen(request, context=self._tls)
        return response


def reconcile(kube: Kubernetes, greeting: dict[str, Any]) -> None:
    """Apply the ConfigMap of a greeting; it is deleted with its owner."""
    metadata = greeting["metadata"]
    owner = {key: greeting[key] for key in ("apiVersion", "kind")}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    wanted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
        "data": {"text": f"Hello, {greeting['spec']['who']}!"},
    }
    path = f"{CONFIG_MAPS}/{metadata['name']}?fieldManager=greeter&force=true"
    kube.send("PATCH", path, wanted).close()


def main() -> None:
    kube = Kubernetes(Path(os.environ["KUBECONFIG"]))
    while True:  # a server ends a watch now and then
        for line in kube.send("GET", f"{GREETINGS}?watch=1"):
            change = json.loads(line)
            if change["type"] in ("ADDED", "MODIFIED"):
                reconcile(kube, change["object"])


if __name__ == "__main__":
    main()
