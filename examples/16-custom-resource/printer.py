"""A controller of thirty lines: it prints each Book page by page, until it is deleted."""

import base64
import contextlib
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

BOOKS = "/apis/my.custom.domain/v1alpha1/namespaces/default/books"
FINALIZER = "my.custom.domain/printer"
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


def reconcile(book: dict[str, Any]) -> None:
    path, status = f"{BOOKS}/{book['metadata']['name']}", book.get("status", {})
    finalizers = book["metadata"].get("finalizers", [])
    if "deletionTimestamp" in book["metadata"]:
        if FINALIZER in finalizers:
            finalizers.remove(FINALIZER)
            seen = book["metadata"]["resourceVersion"]
            send("PATCH", path, {"metadata": {"finalizers": finalizers, "resourceVersion": seen}})
    elif status.get("phase") != "Succeeded":
        time.sleep(0.1)
        pages = status.get("pages", 0) + 1
        phase = "Succeeded" if pages >= book["spec"]["chapters"] else "Printing"
        seen = book["metadata"]["generation"]
        new = {"phase": phase, "pages": pages, "observedGeneration": seen}
        send("PATCH", f"{path}/status", {"status": new})


while True:  # a server ends a watch now and then
    for line in send("GET", f"{BOOKS}?watch=1"):
        change = json.loads(line)
        if change["type"] in ("ADDED", "MODIFIED"):
            with contextlib.suppress(urllib.error.HTTPError):  # it has changed, or is gone
                reconcile(change["object"])
