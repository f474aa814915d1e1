"""The operator against a real API server: `pytest examples/40-operator`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kube import errors
from kilnwork.testing.kubernetes import KubernetesServer

HERE = Path(__file__).parent
GREETINGS = "/apis/example.com/v1/namespaces/default/greetings"
TEXT_OF_ADA = "/api/v1/namespaces/default/configmaps/ada"


@pytest.fixture
def kube(kiln_kubernetes: KubernetesServer) -> Iterator[KubernetesServer]:
    """Run an API server with our definition, and the operator."""
    kiln_kubernetes.install(HERE / "crd.yaml")
    environment = os.environ | {"KUBECONFIG": str(kiln_kubernetes.kubeconfig)}
    operator = subprocess.Popen([sys.executable, HERE / "greeter.py"], env=environment)
    try:
        yield kiln_kubernetes
    finally:
        operator.terminate()
        operator.wait(10)


def test_a_greeting_gets_a_text_that_follows_it_and_goes_with_it(kube: KubernetesServer) -> None:
    greeting = greet(kube, "Ada")
    assert eventually(lambda: text(kube)) == "Hello, Ada!"

    greeting["spec"]["who"] = "Countess"
    kube.request("PUT", f"{GREETINGS}/ada", greeting)
    assert eventually(lambda: text(kube) == "Hello, Countess!")

    kube.request("DELETE", f"{GREETINGS}/ada")
    assert eventually(lambda: text(kube) is None)


def test_greeting_without_a_name_is_refused(kube: KubernetesServer) -> None:
    with pytest.raises(errors.Invalid, match=r"spec\.who"):
        greet(kube, "")


def greet(kube: KubernetesServer, who: str) -> Any:
    greeting: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Greeting"}
    return kube.install(greeting | {"metadata": {"name": "ada"}, "spec": {"who": who}})[0]


def text(kube: KubernetesServer) -> Any:
    try:
        return kube.request("GET", TEXT_OF_ADA)["data"]["text"]
    except errors.NotFound:
        return None


def eventually(found: Callable[[], Any], *, timeout_s: float = 30.0) -> Any:
    """Return the result of `found` as soon as it is true; the operator takes its time."""
    ends = time.monotonic() + timeout_s
    while not (value := found()) and time.monotonic() < ends:
        time.sleep(0.02)
    return value
