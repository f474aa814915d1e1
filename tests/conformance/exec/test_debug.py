"""`kubectl debug` and what a node makes of ephemeral containers, on every kind of node."""

import json
from typing import Any

from support import kube_execs, kube_servers, waiting


def test_debug_container_is_attached_and_logged(
    tool: kube_execs.Kubectl, place: kube_execs.Place, pod: str
) -> None:
    printed, name = b"", ""
    while not printed:
        name = kube_servers.fresh_name("debug")
        argv = ["debug", "-i", pod, f"--image={place.image}", f"--container={name}", "--"]
        with tool.start(*argv, "sh", "-c", "read words; echo got $words") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"some words\n")
            # its input is still open: at its end containerd detaches the clients
            printed = process.stdout.readline()
            rest, said = process.communicate(timeout=60)
        assert printed or b"Unknown stream id" in said, said  # see Kubectl.run
        assert not printed or process.returncode == 0, said
    assert printed + rest == b"got some words\n"
    ended = terminated(tool, pod, name)
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert tool.run("logs", pod, "-c", name).stdout == b"got some words\n"
    refused = tool.run("exec", pod, "-c", name, "--", "true")
    assert refused.returncode != 0


def test_debug_container_runs_once_without_effect_on_the_pod(
    tool: kube_execs.Kubectl, place: kube_execs.Place, pod: str
) -> None:
    name = kube_servers.fresh_name("debug")
    argv = ["debug", pod, f"--image={place.image}", f"--container={name}", "--env=A=b", "--"]
    done = tool.run(*argv, "sh", "-c", "echo $A; exit 3")
    assert done.returncode == 0, done.stderr
    ended = terminated(tool, pod, name)
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    status = ephemeral_status_of(tool, pod)["status"]
    found = next(s for s in status["ephemeralContainerStatuses"] if s["name"] == name)
    assert (found["ready"], found["restartCount"], found["lastState"]) == (False, 0, {})
    assert status["phase"] == "Running"
    assert all(s["ready"] for s in status["containerStatuses"])
    assert tool.run("logs", pod, "-c", name).stdout == b"b\n"


def ephemeral_status_of(tool: kube_execs.Kubectl, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tool.run("get", "pod", pod, "-o", "json").stdout)
    return found


def terminated(tool: kube_execs.Kubectl, pod: str, name: str) -> dict[str, Any]:
    """Wait for the end of an ephemeral container."""
    ended: dict[str, Any] = {}

    def has_terminated() -> bool:
        nonlocal ended
        found = ephemeral_status_of(tool, pod)["status"].get("ephemeralContainerStatuses") or ()
        state: dict[str, Any] = next((s["state"] for s in found if s["name"] == name), {})
        ended = state.get("terminated", {})
        return bool(ended)

    waiting.wait_until(has_terminated, what=f"{name} ends", timeout_s=60)
    return ended
