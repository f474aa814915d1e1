"""exec and port-forward as client libraries do it: WebSocket channels, and who may open them."""

import base64
import contextlib
import json
from urllib import parse

import pytest
from websockets import exceptions

from support import free_ports, kube_execs, kube_servers, waiting


def read_messages(connection: kube_execs.WebSocket) -> dict[int, bytes]:
    """All that comes until the end, by channel."""
    found: dict[int, bytes] = {}
    for message in connection:
        found[message[0]] = found.get(message[0], b"") + message[1:]
    return found


@pytest.mark.parametrize("subprotocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_websocket_channels_carry_streams(
    pod: str, caller: kube_execs.Caller, subprotocol: str
) -> None:
    """Version 4 is what most client libraries speak; kubectl speaks 5."""
    caller.allow(exec=["get"])
    words = [("command", word) for word in ("sh", "-c", "echo out; echo err >&2; exit 7")]
    query = parse.urlencode([("stdout", "true"), ("stderr", "true"), *words])
    with caller.socket(pod, "exec", query, subprotocol) as connection:
        assert connection.subprotocol == subprotocol
        found = read_messages(connection)
    assert (found[1], found[2]) == (b"out\n", b"err\n")
    status = json.loads(found[3])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    assert status["message"].startswith("command terminated with non-zero exit code: ")


def test_version_5_can_close_stdin_alone(pod: str, caller: kube_execs.Caller) -> None:
    caller.allow(exec=["get"])
    query = "stdin=true&stdout=true&command=cat"
    with caller.socket(pod, "exec", query, "v5.channel.k8s.io") as connection:
        connection.send(b"\0some")
        connection.send(b"\xff\0")
        found = read_messages(connection)
    assert found[1] == b"some"
    assert json.loads(found[3])["status"] == "Success"


def test_base64_channels_carry_streams(pod: str, caller: kube_execs.Caller) -> None:
    """For clients without binary messages; a digit for the channel."""
    caller.allow(exec=["get"])
    query = "stdin=true&stdout=true&command=head&command=-c3"
    with caller.socket(pod, "exec", query, "v4.base64.channel.k8s.io") as connection:
        connection.send("0" + base64.b64encode(b"abcdef").decode())
        shown = b"".join(base64.b64decode(m[1:]) for m in connection if m.startswith(b"1"))
    assert shown == b"abc"


def test_unknown_subprotocol_is_refused(pod: str, caller: kube_execs.Caller) -> None:
    caller.allow(exec=["get"])
    with pytest.raises(exceptions.InvalidStatus) as refused:
        caller.socket(pod, "exec", "stdout=true&command=true", "v9.channel.k8s.io")
    assert refused.value.response.status_code == 403


def test_request_without_streams_is_refused(pod: str, caller: kube_execs.Caller) -> None:
    caller.allow(exec=["get"])
    with pytest.raises(exceptions.InvalidStatus) as refused:
        caller.socket(pod, "exec", "command=true", "v4.channel.k8s.io")
    assert refused.value.response.status_code == 400
    body = refused.value.response.body or b""
    assert b"you must specify at least 1 of stdin, stdout, stderr" in body


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
def test_request_without_upgrade_is_a_bad_request(
    pod: str, pods: kube_execs.Pods, caller: kube_execs.Caller, what: str
) -> None:
    caller.allow(exec=["create"], attach=["create"], portforward=["create"])
    with caller.http() as http:
        response = http.post(f"{pods.path}/{pod}/{what}?stdout=true&command=true", None)
    assert (response.status, response.message) == (400, "Upgrade request required")


def test_permission_depends_on_the_method(
    pod: str, pods: kube_execs.Pods, caller: kube_execs.Caller
) -> None:
    """GET is `get` and POST is `create`, also for the same stream."""
    caller.allow(exec=["create"])
    with pytest.raises(exceptions.InvalidStatus) as refused:
        caller.socket(pod, "exec", "stdout=true&command=true", "v5.channel.k8s.io")
    assert refused.value.response.status_code == 403
    with caller.http() as http:
        response = http.post(f"{pods.path}/{pod}/attach?stdout=true", None)
    assert response.status == 403
    assert 'cannot create resource "pods/attach" in API group ""' in response.message


def test_unbound_pod_is_a_bad_request(
    admin: kube_servers.Http, place: kube_execs.Place, pods: kube_execs.Pods
) -> None:
    made = place.pod("waits", "true")
    made["spec"].pop("nodeName")
    made["spec"]["nodeSelector"] = {"no-such": "node"}
    admin.post(pods.path, made).ok()
    response = admin.post(f"{pods.path}/waits/exec?stdout=true&command=true", None)
    assert (response.status, response.message) == (400, "pod waits does not have a host assigned")


def test_websocket_channels_forward_ports(pods: kube_execs.Pods, caller: kube_execs.Caller) -> None:
    """Two channels a port, data and errors, that begin with its number in two bytes."""
    caller.allow(portforward=["get"])
    port = free_ports.free()
    script = "import socket\ns = socket.create_server(('', %d))\nwhile True:\n  c = s.accept()[0]\n"
    script += "  c.sendall(b'got ' + c.recv(10)); c.close()"
    pods.make("echo", "python3", "-c", script % port)
    number = port.to_bytes(2, "little")

    def exchange() -> bytes:
        query = f"ports={port}"
        with caller.socket("echo", "portforward", query, "v4.channel.k8s.io") as connection:
            assert {connection.recv(), connection.recv()} == {b"\0" + number, b"\1" + number}
            with contextlib.suppress(exceptions.InvalidState):  # until a program listens
                connection.send(b"\0hello")
            return read_messages(connection).get(0, b"")

    waiting.wait_until(lambda: exchange() == b"got hello", what="it responds")
