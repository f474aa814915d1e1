"""Variables of tasks, also from Secrets: under `start` and `connect`, for calls and commands.

Secret values are in no file, manifest or process list.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.kit import processes
from support import up_server as up_support
from support import waiting

pytestmark = pytest.mark.timeout(120)

VALUE = "hunter2-never-on-disk"

OBJECTS = f"""
apiVersion: v1
kind: Secret
metadata: {{name: db}}
stringData: {{password: {VALUE}, user: ann}}
---
apiVersion: v1
kind: Secret
metadata: {{name: noise}}
data: {{bytes: /w==}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{level: debug}}
"""

TASK = """
apiVersion: kilnwork.dev/v1alpha1
kind: Task
metadata: {{name: {name}}}
spec:
  command: [sh, -c]
  args: ['printf %s "$PLAIN,$PASSWORD,$LEVEL,${{NONE-unset}}" | md5sum > {directory}/{name}']
  env:
  - {{name: PLAIN, value: here}}
  - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: db, key: password}}}}}}
  - {{name: LEVEL, valueFrom: {{configMapKeyRef: {{name: settings, key: level}}}}}}
  - {{name: NONE, valueFrom: {{secretKeyRef: {{name: none, key: x, optional: true}}}}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        made.kiln("apply", "-f", "-", stdin=OBJECTS)
        yield made


@kiln.task(env={"PASSWORD": kiln.SecretKey("db", "password"), "MODE": "fast"})
def with_secret() -> tuple[str | None, str | None, str]:
    """Return the values reversed, since results are stored."""
    child = subprocess.run(["printenv", "PASSWORD"], capture_output=True, text=True, check=False)
    own = os.environ.get("PASSWORD")
    return own and own[::-1], os.environ.get("MODE"), child.stdout.strip()[::-1]


@kiln.task
def without() -> tuple[str | None, str | None]:
    return os.environ.get("PASSWORD"), os.environ.get("MODE")


@kiln.task(env={"MODE": "outer"})
def outer() -> tuple[str | None, tuple[str | None, ...], str | None, str | None]:
    """Return the values of a child, which may run in place."""
    same = inner.submit().result()
    other = with_mode.submit().result()
    return os.environ.get("MODE"), other, same, os.environ.get("MODE")


@kiln.task(env={"MODE": "outer"})
def inner() -> str | None:
    return os.environ.get("MODE")


@kiln.task(env={"MODE": "inner", "MORE": "x"})
def with_mode() -> tuple[str | None, ...]:
    return os.environ.get("MODE"), os.environ.get("MORE")


def _in_files(directory: Path) -> list[Path]:
    found = subprocess.run(
        ["grep", "-rlaF", VALUE, str(directory)], capture_output=True, text=True, check=False
    )
    return [Path(line) for line in found.stdout.splitlines()]


def test_calls_get_the_values_of_secrets_and_leave_nothing(server: up_support.UpServer) -> None:
    with kiln.connect(server.data) as session:
        assert session.has_secrets
        assert with_secret.submit().result(60) == (VALUE[::-1], "fast", VALUE[::-1])
        assert [without.submit().result(30) for _ in range(4)] == [(None, None)] * 4
        assert outer.submit().result(60) == ("outer", ("inner", "x"), "outer", "outer")
    store = {path.name for path in _in_files(server.data)}
    assert store <= {"control.db", "control.db-wal"}, store  # the Secret object itself


def test_changed_secret_reaches_later_attempts(server: up_support.UpServer) -> None:
    with kiln.connect(server.data):
        changed = with_secret.options(env={"PASSWORD": kiln.SecretKey("db", "user")})
        assert changed.submit().result(60)[:2] == ("nna", None)
        new = OBJECTS.split("---")[0].replace("ann", "bea")
        server.kiln("apply", "-f", "-", stdin=new)
        waiting.wait_until(lambda: changed.submit().result(60)[0] == "aeb", what="the new value")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (kiln.SecretKey("db", "nokey"), "key nokey of Secret db does not exist"),
        (kiln.SecretKey("nosuch", "k"), "there is no Secret nosuch in namespace default"),
        (kiln.SecretKey("noise", "bytes"), "key bytes of Secret noise is no text in UTF-8"),
    ],
)
def test_missing_secret_fails_the_task_by_name(
    server: up_support.UpServer, key: kiln.SecretKey, message: str
) -> None:
    with kiln.connect(server.data):
        future = with_secret.options(env={"PASSWORD": key}).submit()
        with pytest.raises(kiln.VariableMissing, match=message):
            future.result(60)
        assert "VariableMissing" in server.kiln("why", future.id).stdout


def test_commands_get_the_values_of_secrets_and_config_maps(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    server.kiln("apply", "-f", "-", stdin=TASK.format(name="command", directory=tmp_path))
    server.kiln("wait", "command", "--timeout", "60s")
    line = f"here,{VALUE},debug,unset"
    wanted = subprocess.run(["md5sum"], input=line, capture_output=True, text=True, check=True)
    assert (tmp_path / "command").read_text() == wanted.stdout
    assert VALUE not in server.kiln("get", "task", "command", "-o", "yaml").stdout
    bad = TASK.format(name="fails", directory=tmp_path).replace("name: db,", "name: gone,")
    server.kiln("apply", "-f", "-", stdin=bad)
    server.kiln("wait", "fails", "--timeout", "60s", check=False)
    said = server.kiln("why", "fails").stdout
    assert "variable PASSWORD: there is no Secret gone in namespace default" in said


def test_pod_containers_get_values_from_the_node(
    server: up_support.UpServer, tmp_path: Path
) -> None:
    cluster = "{apiVersion: kilnwork.dev/v1alpha1, kind: TaskCluster, metadata: {name: apart}, "
    cluster += "spec: {runtime: EphemeralContainers}}"
    server.kiln("apply", "-f", "-", stdin=cluster)
    text = TASK.format(name="apart", directory=tmp_path)
    text = text.replace("  command:", "  clusterName: apart\n  command:")
    server.kiln("apply", "-f", "-", stdin=text)
    server.kiln("wait", "apart", "--timeout", "60s")
    line = f"here,{VALUE},debug,unset"
    wanted = subprocess.run(["md5sum"], input=line, capture_output=True, text=True, check=True)
    assert (tmp_path / "apart").read_text() == wanted.stdout
    pods = server.kiln("get", "pods", "-o", "yaml").stdout
    assert VALUE not in pods
    assert "secretKeyRef" in pods


def test_secrets_are_separate_per_namespace(server: up_support.UpServer, tmp_path: Path) -> None:
    here = ("-n", "elsewhere")
    space = "{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}"
    server.kiln("apply", "-f", "-", stdin=space)
    cluster = "{apiVersion: kilnwork.dev/v1alpha1, kind: TaskCluster, metadata: {name: default}}"
    server.kiln("apply", "-f", "-", *here, stdin=cluster)
    server.kiln("apply", "-f", "-", *here, stdin=TASK.format(name="there", directory=tmp_path))
    server.kiln("wait", "there", "--timeout", "60s", *here, check=False)
    said = server.kiln("why", "there", *here).stdout
    assert "there is no Secret db in namespace elsewhere" in said


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{name: A, value: x, valueFrom: {secretKeyRef: {name: a, key: b}}}", "beside value"),
        ("{name: A, valueFrom: {}}", "exactly one of"),
        ("{name: A, valueFrom: {secretKeyRef: {name: A_B, key: b}}}", "secretKeyRef.name"),
        ("{name: A, valueFrom: {secretKeyRef: {name: a, key: a/b}}}", "secretKeyRef.key"),
    ],
)
def test_invalid_reference_is_rejected(
    server: up_support.UpServer, tmp_path: Path, entry: str, message: str
) -> None:
    text = TASK.format(name="refused", directory=tmp_path).replace(
        "- {name: PLAIN, value: here}", f"- {entry}"
    )
    refused = server.kiln("apply", "-f", "-", stdin=text, check=False)
    assert refused.returncode != 0
    assert message in refused.stderr


def test_home_reads_secrets_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "secrets" / "db").mkdir(parents=True)
    (tmp_path / "secrets" / "db" / "password").write_text(VALUE)
    with kiln.start(tmp_path / "journal", slots=1, secrets=tmp_path / "secrets"):
        assert with_secret.submit().result(60) == (VALUE[::-1], "fast", VALUE[::-1])
        assert without.submit().result(60) == (None, None)
        for pid in processes.read_all():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            assert VALUE.encode() not in line
    assert _in_files(tmp_path / "journal") == []


def test_home_without_secrets_refuses_references_by_name() -> None:
    with kiln.start(slots=1):
        assert without.options(env={"MODE": "x"}).submit().result(60) == (None, "x")
        with pytest.raises(kiln.BadOption, match=r"kiln.start\(secrets=DIRECTORY\)"):
            with_secret.submit()


def test_call_that_waits_for_its_values_can_be_cancelled(tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "db"
    secret.mkdir(parents=True)
    os.mkfifo(secret / "ignored")
    (secret / "password").symlink_to("/proc/self/mem")  # cannot be read
    with kiln.start(slots=1, secrets=tmp_path / "secrets"):
        future = with_secret.submit()
        future.cancel()
        with pytest.raises(kiln.Cancelled):
            future.result(60)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"A": 1}, "A is int"),
        ({"A=B": "x"}, "is no name of a variable"),
        ({"KILN_X": "x"}, "must not begin with KILN_"),
        ({"A": kiln.SecretKey("Not_A_Name", "x")}, "secretKeyRef.name"),
        (["A"], "a dictionary of strings"),
    ],
)
def test_invalid_variables_are_rejected(env: object, message: str) -> None:
    with pytest.raises(kiln.BadOption, match=message):
        kiln.task(env=env)(lambda: None)  # type: ignore[call-overload]
