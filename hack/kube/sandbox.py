"""Isolated environment of a cluster: network, mounts and process ids. Linux, root.

Used by `python -m hack.kube run`. All processes inside end with it, however it ends, also when its
first process gets SIGKILL (pid_namespaces(7)); addresses, firewall rules, mounts and the sockets
and logs below /run and /var/log are removed with their namespaces. So two may run side by side with
the same addresses. Only cgroups would outlive it: a process outside removes them (`cgroups`).
"""

import ctypes
import os
import shutil
import signal
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path

from hack.kube import cgroups

ADDRESS = "10.88.0.1"
"""Of the bridge inside: what the API server, the nodes and the name server listen on."""

NEEDED = {"ip": "iproute2", "iptables": "iptables"}
"""Program → package of Debian."""

NODE_DIRECTORY = Path("/var/lib/kilnwork")
"""A directory that each node has of its own (`node`), as machines have; empty outside of nodes."""

BRIDGE = "kube0"
SERVICES = "10.96.0.0/16"

_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

# The kubelet sets these for the whole machine (pkg/kubelet/cm/container_manager_linux.go,
# setupKernelTunables) and nothing puts them back: it gets files of the sandbox instead.
_TUNABLES = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")


class Impossible(Exception):
    """This machine cannot run a sandbox; the text says what is missing."""


def check() -> None:
    if os.geteuid() != 0:
        raise Impossible("a cluster with a network of its own needs root: run this with sudo")
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            raise Impossible(f"{program} is missing: apt-get install {package}")


def run(inside: Callable[[str], int]) -> int:
    """Call `inside` in the sandbox with the name of the root cgroup to use; return its result.

    Nothing of the sandbox is left afterwards. SIGTERM is passed on to it; a Ctrl-C reaches it by
    itself.
    """
    check()
    cgroups.sweep()
    cgroup = cgroups.name()
    janitor = cgroups.Janitor(cgroup)
    _call("unshare", _libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET))
    first = os.fork()
    if first == 0:
        os._exit(_first_process(lambda: inside(cgroup)))
    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM)),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        _, status = os.waitpid(first, 0)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        janitor.finish()
    return _code(status)


def _first_process(inside: Callable[[], int]) -> int:
    """Process 1: prepares the sandbox, starts the given function, reaps orphans."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _prepare()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"cannot make a place of its own for the cluster: {error}", flush=True)
        return 1
    main = os.fork()
    if main == 0:
        code = 1
        try:
            code = inside()
        except SystemExit as error:  # by SIGTERM
            code = int(error.code or 0)
        except BaseException:  # noqa: BLE001 - printed, and the process ends
            traceback.print_exc()
        finally:
            os._exit(code)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(main, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == main:
            return _code(status)


def _prepare() -> None:
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount("none", "/", flags=_MS_REC | _MS_SHARED)  # among ourselves: Pods may want propagation
    _mount("proc", "/proc", kind="proc")
    for directory in ("/run", "/var/log"):
        _mount("tmpfs", directory, kind="tmpfs")
    NODE_DIRECTORY.mkdir(parents=True, exist_ok=True)
    _mount("tmpfs", str(NODE_DIRECTORY), kind="tmpfs")
    _mount("none", str(NODE_DIRECTORY), flags=_MS_PRIVATE)  # what a node mounts there is its own
    own = Path("/run/own")
    own.mkdir()
    for tunable in _TUNABLES:
        real = Path("/proc/sys", tunable)
        copy = own / real.name
        copy.write_bytes(real.read_bytes())
        _mount(str(copy), str(real), flags=_MS_BIND)
    resolver = own / "resolv.conf"
    resolver.write_text(f"nameserver {ADDRESS}\nsearch svc.cluster.local cluster.local\n")
    _mount(str(resolver), os.path.realpath("/etc/resolv.conf"), flags=_MS_BIND)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for command in (
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"route add {SERVICES} dev {BRIDGE}",  # rewritten on its way out, but it needs a way
    ):
        subprocess.run(["ip", *command.split()], check=True)


def _mount(source: str, target: str, *, kind: str | None = None, flags: int = 0) -> None:
    encoded = None if kind is None else kind.encode()
    _call(f"mount {target}", _libc.mount(source.encode(), target.encode(), encoded, flags, None))


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _code(status: int) -> int:
    """Return the exit code as a shell does: 128 + the signal's number."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
