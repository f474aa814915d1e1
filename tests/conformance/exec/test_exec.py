"""exec, attach and port-forward through the API server, by kubectl and both of its transports."""

import json
import os
import socket
from concurrent import futures
from pathlib import Path

from support import free_ports, kube_execs, kube_servers, waiting

HELD = "import signal; signal.pause()"


def test_exec_returns_both_streams_and_exit_code(tool: kube_execs.Kubectl, pod: str) -> None:
    done = tool.run("exec", pod, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, b"out\n")
    assert done.stderr == b"err\ncommand terminated with exit code 3\n"


def test_success_has_empty_error_stream(tool: kube_execs.Kubectl, pod: str) -> None:
    done = tool.run("exec", pod, "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_exit_code_after_signal_is_128_plus_its_number(tool: kube_execs.Kubectl, pod: str) -> None:
    assert tool.run("exec", pod, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_process_has_environment_of_the_container(tool: kube_execs.Kubectl, pod: str) -> None:
    done = tool.run("exec", pod, "--", "sh", "-c", 'echo "$COLOUR"; echo $HOSTNAME')
    assert done.stdout.splitlines()[0] == b"blue green"


def test_arguments_are_passed_unchanged(tool: kube_execs.Kubectl, pod: str) -> None:
    """Also empty ones and odd letters. A kubelet replaces what is not UTF-8; ours does not."""
    words = ["", " ", "a&b=c;d%41", "ü€", "-x"]
    script = "import os, sys; os.write(1, os.fsencode(repr(sys.argv[1:])))"
    done = tool.run("exec", pod, "--", "python3", "-c", script, *words)
    assert done.stdout.decode() == repr(words)


def test_stdin_is_passed_completely_and_closed(tool: kube_execs.Kubectl, pod: str) -> None:
    content = os.urandom(3_000_000)
    done = tool.run("exec", "-i", pod, "--", "cat", stdin=content)
    assert done.returncode == 0, done.stderr
    assert done.stdout == content


def test_without_stdin_option_input_is_empty(tool: kube_execs.Kubectl, pod: str) -> None:
    done = tool.run("exec", pod, "--", "cat", stdin=b"not sent")
    assert (done.returncode, done.stdout) == (0, b"")


def test_command_that_ignores_stdin_ends(tool: kube_execs.Kubectl, pod: str) -> None:
    done = tool.run("exec", "-i", pod, "--", "echo", "hi", stdin=b"some words")
    assert (done.returncode, done.stdout) == (0, b"hi\n")


def test_missing_program_is_an_error(tool: kube_execs.Kubectl, pod: str) -> None:
    """The kubelet's text is its runtime's; every one names the program and what is wrong."""
    done = tool.run("exec", pod, "--", "no-such-program")
    assert done.returncode != 0
    assert b'exec: "no-such-program": executable file not found in' in done.stderr


def test_several_execs_run_at_once(tool: kube_execs.Kubectl, pod: str) -> None:
    def run_one(number: int) -> tuple[int, bytes]:
        done = tool.run(
            "exec", "-i", pod, "--", "sh", "-c", f"cat; exit {number}", stdin=b"%d" % number
        )
        return done.returncode, done.stdout

    with futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(run_one, range(6))) == [(n, b"%d" % n) for n in range(6)]


def test_terminal_has_the_size_of_the_client(tool: kube_execs.Kubectl, pod: str) -> None:
    script = "import os, time\nprint(os.isatty(0), os.environ['TERM'], flush=True)\nn = 0\n"
    script += "while n != (101, 31): n = os.get_terminal_size(); time.sleep(0.02)\n"
    script += "print('resized'); print('word', input())"
    argv = ("exec", "-it", pod, "--", "python3", "-c", script)
    with tool.terminal(*argv, width=81, height=25) as terminal:
        assert b"True xterm" in terminal.until(b"xterm\r\n")
        terminal.resize(width=101, height=31)
        terminal.until(b"resized\r\n")
        terminal.type(b"hello\r")
        terminal.until(b"word hello\r\n")
        assert terminal.end() == 0


def test_control_c_interrupts_the_program_in_the_terminal(
    tool: kube_execs.Kubectl, pod: str
) -> None:
    script = "import os, signal\nsignal.signal(signal.SIGINT, lambda *_: os._exit(42))\n"
    script += "print('on', flush=True)\nwhile True: signal.pause()"
    argv = ("exec", "-it", pod, "--", "python3", "-c", script)
    with tool.terminal(*argv, width=80, height=24) as terminal:
        terminal.until(b"on\r\n")
        terminal.type(b"\x03")
        assert terminal.end() == 42


def test_missing_pod_or_container_is_an_error(tool: kube_execs.Kubectl, pod: str) -> None:
    gone = tool.run("exec", "unknown", "--", "true")
    assert gone.stderr == b'Error from server (NotFound): pods "unknown" not found\n'
    other = tool.run("exec", pod, "-c", "other", "--", "true")
    assert b"container other is not valid for pod p" in other.stderr


def test_exec_in_ended_container_is_an_error(
    tool: kube_execs.Kubectl,
    pods: kube_execs.Pods,
    place: kube_execs.Place,
    admin: kube_servers.Http,
) -> None:
    """kubectl refuses for a Pod that is Succeeded; so the Pod has a second container that runs."""
    made = place.pod("two", "python3", "-c", HELD)
    second = {**made["spec"]["containers"][0], "name": "brief", "command": ["true"]}
    made["spec"]["containers"].append(second)
    admin.post(pods.path, made).ok()

    def has_ended() -> bool:
        status = admin.get(f"{pods.path}/two").ok()["status"]
        states = {s["name"]: s["state"] for s in status.get("containerStatuses") or ()}
        return "terminated" in states.get("brief", {}) and "running" in states.get("main", {})

    waiting.wait_until(has_ended, what="the second container has ended", timeout_s=60.0)
    done = tool.run("exec", "two", "-c", "brief", "--", "true")
    assert done.returncode == 1
    assert b'container not found ("brief")' in done.stderr
    assert tool.run("exec", "two", "-c", "main", "--", "true").returncode == 0


def test_files_are_copied_both_ways(tool: kube_execs.Kubectl, pod: str, tmp_path: Path) -> None:
    there = tool.run("exec", pod, "--", "mktemp", "-d").stdout.decode().strip()
    content = os.urandom(300_000)
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "file").write_bytes(content)
    done = tool.run("cp", str(tmp_path / "up"), f"{pod}:{there}/copy")
    assert done.returncode == 0, done.stderr
    done = tool.run("cp", f"{pod}:{there}/copy/file", str(tmp_path / "down"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "down").read_bytes() == content
    tool.run("exec", pod, "--", "rm", "-r", there)


SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.path.encode() * 100_000
        self.send_response(200); self.send_header('Content-Length', str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('', int(sys.argv[1])), Handler).serve_forever()
"""


def test_forwarded_port_serves_many_connections(
    tool: kube_execs.Kubectl, pods: kube_execs.Pods
) -> None:
    port = free_ports.free()
    pods.make("web", "python3", "-c", SERVE, str(port))
    ready = f"import socket; socket.create_connection(('127.0.0.1', {port}))"

    def is_listening() -> bool:
        return tool.run("exec", "web", "--", "python3", "-c", ready).returncode == 0

    waiting.wait_until(is_listening, what="it listens")
    with tool.forward("web", port) as forward:
        paths = [f"/{n}" for n in range(8)]
        with futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(forward.get, paths)) == [p.encode() * 100_000 for p in paths]


def test_forward_to_closed_port_reports_an_error(tool: kube_execs.Kubectl, pod: str) -> None:
    with tool.forward(pod, 1) as forward:
        with socket.create_connection(("127.0.0.1", forward.port), timeout=10) as connection:
            connection.settimeout(20)
            assert connection.recv(100) == b""
        assert forward.process.wait(20) == 1
        assert forward.process.stderr is not None
        said = forward.process.stderr.read().decode()
        assert "an error occurred forwarding" in said
        assert "error forwarding port 1 to pod " in said
        assert "connection refused" in said


def test_attach_streams_new_output(tool: kube_execs.Kubectl, pods: kube_execs.Pods) -> None:
    script = "import time, sys\nfor n in range(600): print(n, flush=True); time.sleep(0.05)"
    pods.make("talker", "python3", "-c", script)
    with tool.start("attach", "talker") as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(5)]
        assert seen == list(range(seen[0], seen[0] + 5))
        process.kill()


def test_attach_passes_stdin_once(tool: kube_execs.Kubectl, pods: kube_execs.Pods) -> None:
    """What `kubectl run -i` does; the end of the input ends the container, and that the attach."""
    pods.make("taker", "cat", stdin=True, stdinOnce=True)
    # a kubelet under load may publish that the Pod runs before it finds the container
    waiting.wait_until(
        lambda: tool.run("exec", "taker", "--", "true").returncode == 0,
        what="the node finds the container",
    )
    done = tool.run("attach", "-i", "taker", stdin=b"some words\n")
    assert done.returncode == 0, done.stderr
    assert b"some words\n" in done.stdout


def test_attach_uses_the_terminal(tool: kube_execs.Kubectl, pods: kube_execs.Pods) -> None:
    script = "import os\nwhile True: print('got', input('> '), os.isatty(0), flush=True)"
    pods.make("shell", "python3", "-c", script, stdin=True, tty=True)
    with tool.terminal("attach", "-it", "shell", width=80, height=24) as terminal:
        terminal.type(b"one\r")
        terminal.until(b"got one True\r\n")
        terminal.type(b"two\r")
        terminal.until(b"got two True\r\n")


def test_kubectl_run_attached_returns_exit_code_and_removes_pod(
    tool: kube_execs.Kubectl, place: kube_execs.Place
) -> None:
    """`kubectl run -i --rm`: creates, waits, attaches, takes the exit code from the status."""
    name = kube_servers.fresh_name("run")
    made = place.pod(name, "sh", "-c", "cat; echo done; exit 5", stdin=True, stdinOnce=True)
    overrides = json.dumps({"apiVersion": "v1", "spec": made["spec"]})
    argv = ["run", name, "-i", "--rm", "--restart=Never", f"--image={place.image}"]
    done = tool.run(*argv, f"--overrides={overrides}", stdin=b"words\n")
    assert done.returncode == 5, done
    assert b"words\ndone\n" in done.stdout
