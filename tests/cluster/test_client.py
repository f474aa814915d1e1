"""Our client against the real API server: identities, patches, apply, finalizers, kube events."""

import contextlib
import dataclasses
import json
import sys
import time as machine_time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from kilnwork.api import api_resources, meta
from kilnwork.kit import clock
from kilnwork.kube import client, config, credentials, errors, events, finalizers
from support import kube_cluster, waiting

pytestmark = pytest.mark.timeout(180)

_FINALIZER = "test.kilnwork.dev/outside"


@pytest.fixture
def settings(kube: kube_cluster.Kube, namespace: str) -> config.Config:
    """Return the administrator's settings, by files, in the namespace of the test."""
    return dataclasses.replace(config.load(kube.kubeconfig), namespace=namespace)


@pytest.fixture
async def admin(settings: config.Config) -> AsyncIterator[client.Client]:
    async with client.Client(settings) as opened:
        yield opened


def _without_credentials(settings: config.Config, **more: Any) -> config.Config:
    """Return settings for the same server without the administrator's credentials."""
    bare = dataclasses.replace(settings, client_cert_file=None, client_key_file=None)
    return dataclasses.replace(bare, **more)


async def _who(kube: client.Client) -> dict[str, Any]:
    """Return the user that the server takes us for."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = await kube.raw("POST", path, body=json.dumps(body).encode())
    info: dict[str, Any] = json.loads(response.body)["status"]["userInfo"]
    return info


async def _token(admin: client.Client, name: str = "default") -> str:
    made = await admin.create_sub(api_resources.SERVICE_ACCOUNTS, name, "token", {"spec": {}})
    return str(made["status"]["token"])


def _expired(kube: kube_cluster.Kube, namespace: str) -> str:
    """Return a token of the default account that expired a minute ago."""
    now = int(machine_time.time())
    account = kube.http.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default").ok()
    claims = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["https://kubernetes.default.svc"],
        "sub": f"system:serviceaccount:{namespace}:default",
        "iat": now - 4000,
        "nbf": now - 4000,
        "exp": now - 60,
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": {"name": "default", "uid": account["metadata"]["uid"]},
        },
    }
    return jwt.encode(claims, (kube.pki / "sa.key").read_text(), algorithm="RS256")


def _map(name: str, **data: str) -> meta.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
    }


async def test_expired_token_is_refused_and_a_rotated_file_is_read(
    kube: kube_cluster.Kube, admin: client.Client, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(_expired(kube, namespace))
    async with client.Client(_without_credentials(admin.config, token_file=file)) as other:
        with pytest.raises(errors.Unauthorized, match="Unauthorized"):
            await _who(other)
        file.write_text(await _token(admin))
        assert (await _who(other))["username"] == f"system:serviceaccount:{namespace}:default"


def _plugin(directory: Path, **status: str) -> config.ExecPlugin:
    """Write a credential plugin that prints `status`, and the expired token at its first run."""
    program, ran = directory / "log-in", directory / "ran"
    response = {"apiVersion": config.EXEC_VERSIONS[0], "kind": "ExecCredential"}
    program.write_text(
        f"#!{sys.executable}\nimport json, pathlib\n"
        f"ran, status = pathlib.Path({str(ran)!r}), {status!r}\n"
        "first = status.pop('first', None)\n"
        "if first and not ran.exists():\n    status['token'] = first\n"
        f"ran.touch()\nprint(json.dumps({response!r} | {{'status': status}}))\n"
    )
    program.chmod(0o700)
    return config.ExecPlugin(
        command=str(program), api_version=config.EXEC_VERSIONS[0], interactive="Never"
    )


async def test_plugin_runs_again_when_its_token_is_refused(
    kube: kube_cluster.Kube, admin: client.Client, namespace: str, tmp_path: Path
) -> None:
    plugin = _plugin(tmp_path, first=_expired(kube, namespace), token=await _token(admin))
    async with client.Client(_without_credentials(admin.config, exec=plugin)) as other:
        assert (await _who(other))["username"] == f"system:serviceaccount:{namespace}:default"


async def test_plugin_may_give_a_certificate(
    kube: kube_cluster.Kube, settings: config.Config, tmp_path: Path
) -> None:
    path = kube.kubeconfig_for("plugged", groups=["testers"])
    held = credentials.Credentials(config.load(path)).get()
    assert held.cert is not None
    assert held.key is not None
    plugin = _plugin(tmp_path, clientCertificateData=held.cert, clientKeyData=held.key)
    async with client.Client(_without_credentials(settings, exec=plugin)) as other:
        found = await _who(other)
    assert (found["username"], found["groups"][0]) == ("plugged", "testers")


async def test_certificates_are_read_again(
    kube: kube_cluster.Kube, settings: config.Config, tmp_path: Path
) -> None:
    cert, key = tmp_path / "crt", tmp_path / "key"

    def become(user: str) -> None:
        held = credentials.Credentials(config.load(kube.kubeconfig_for(user))).get()
        cert.write_text(held.cert or "")
        key.write_text(held.key or "")

    become("first")
    time = clock.ManualClock()
    rotating = _without_credentials(settings, client_cert_file=cert, client_key_file=key)
    async with client.Client(rotating, time=time) as other:
        assert (await _who(other))["username"] == "first"
        become("second")
        assert (await _who(other))["username"] == "first"
        time.advance(credentials.FILE_AGE_S)
        key.write_text("half written")
        assert (await _who(other))["username"] == "first"
        become("second")
        time.advance(credentials.FILE_AGE_S)
        assert (await _who(other))["username"] == "second"


async def test_impersonation_acts_as_another_user(settings: config.Config) -> None:
    jane = config.Impersonation(
        user="jane",
        uid="u-7",
        groups=("developers", "friends"),
        extra=(("example.org/scopes", ("read", "write")),),
    )
    async with client.Client(dataclasses.replace(settings, impersonate=jane)) as other:
        found = await _who(other)
        assert found == {
            "username": "jane",
            "uid": "u-7",
            "groups": ["developers", "friends", "system:authenticated"],
            "extra": {"example.org/scopes": ["read", "write"]},
        }
        with pytest.raises(errors.Forbidden, match='User "jane" cannot list resource "pods"'):
            await other.list(api_resources.PODS, settings.namespace, type=dict)


async def test_impersonation_without_the_right_is_refused(
    kube: kube_cluster.Kube, settings: config.Config
) -> None:
    path = kube.kubeconfig_for("bob")
    acting = dataclasses.replace(config.load(path), impersonate=config.Impersonation(user="jane"))
    async with client.Client(acting) as other:
        with pytest.raises(errors.Forbidden, match='"bob" cannot impersonate resource "users"'):
            await other.list(api_resources.PODS, settings.namespace, type=dict)


async def test_apply_tracks_field_owners(admin: client.Client) -> None:
    first = await admin.apply(api_resources.CONFIG_MAPS, _map("m", a="1", b="1"), manager="one")
    assert first["data"] == {"a": "1", "b": "1"}
    with pytest.raises(errors.Conflict, match=r'conflict with "one".*: \.data\.a'):
        await admin.apply(api_resources.CONFIG_MAPS, _map("m", a="2"), manager="two")
    taken = await admin.apply(
        api_resources.CONFIG_MAPS, _map("m", a="2"), manager="two", force=True
    )
    assert taken["data"] == {"a": "2", "b": "1"}
    left = await admin.apply(api_resources.CONFIG_MAPS, _map("m"), manager="one")
    assert left["data"] == {"a": "2"}


async def test_finalizer_holds_an_object_until_it_is_removed(admin: client.Client) -> None:
    made = await admin.create(api_resources.CONFIG_MAPS, _map("m"))
    await admin.merge_patch(api_resources.CONFIG_MAPS, "m", {"data": {"by": "another"}})
    await finalizers.add(admin, api_resources.CONFIG_MAPS, made, finalizer=_FINALIZER)
    await admin.delete(api_resources.CONFIG_MAPS, "m", uid=made["metadata"]["uid"])
    going = await admin.get(api_resources.CONFIG_MAPS, "m", type=meta.Partial)
    assert going.metadata.deletion_timestamp is not None
    assert going.metadata.finalizers == (_FINALIZER,)
    with pytest.raises(errors.Invalid, match="no new finalizers can be added"):
        await finalizers.add(admin, api_resources.CONFIG_MAPS, going, finalizer="other.dev/x")
    await finalizers.remove(admin, api_resources.CONFIG_MAPS, going, finalizer=_FINALIZER)
    with pytest.raises(errors.NotFound):
        await admin.get(api_resources.CONFIG_MAPS, "m")
    await finalizers.remove(admin, api_resources.CONFIG_MAPS, going, finalizer=_FINALIZER)


async def test_kube_events_are_counted_up_and_kubectl_shows_them(
    kube: kube_cluster.Kube, admin: client.Client, namespace: str
) -> None:
    made = await admin.create(api_resources.CONFIG_MAPS, _map("m"))
    about = events.reference(api_resources.CONFIG_MAPS, made)
    node = events.Reference(api_version="v1", kind="Node", name=f"node-of-{namespace}")
    recorder = events.Recorder(admin, component="kiln-test", host="here")
    await recorder.start()
    try:
        for _ in range(3):
            recorder.emit(about, events.WARNING, "Odd", "something is odd")
            assert await recorder.flush(timeout_s=30)
        for number in range(events.SIMILAR + 5):
            recorder.emit(about, events.NORMAL, "Many", f"text {number}")
        recorder.emit(node, events.NORMAL, "Seen", "a node, which has no namespace")
        assert await recorder.flush(timeout_s=30)
    finally:
        await recorder.stop()
    listed = await admin.list(api_resources.EVENTS, namespace, type=dict)
    odd = [e for e in listed.items if e["reason"] == "Odd"]
    many = [e for e in listed.items if e["reason"] == "Many"]
    assert [(e["count"], e["source"]["component"]) for e in odd] == [(3, "kiln-test")]
    assert (len(many), max(e["count"] for e in many)) == (events.SIMILAR + 1, 5)
    shown = kube.kubectl("--namespace", namespace, "events", "--for=configmap/m")
    assert "(x3 over " in shown
    about_node = await admin.list(
        api_resources.EVENTS,
        "default",
        type=dict,
        field_selector=f"involvedObject.name={node.name}",
    )
    assert [e["message"] for e in about_node.items] == ["a node, which has no namespace"]


async def test_namespace_being_deleted_refuses_kube_events_without_harm(
    kube: kube_cluster.Kube, admin: client.Client, namespace: str
) -> None:
    made = await admin.create(api_resources.CONFIG_MAPS, _map("m"))
    await finalizers.add(admin, api_resources.CONFIG_MAPS, made, finalizer=_FINALIZER)
    await admin.delete(api_resources.NAMESPACES, namespace)
    with pytest.raises(errors.Forbidden, match="because it is being terminated"):
        await admin.create(api_resources.CONFIG_MAPS, _map("late"))
    recorder = events.Recorder(admin, component="kiln-test")
    await recorder.start()
    recorder.emit(
        events.reference(api_resources.CONFIG_MAPS, made), events.NORMAL, "Late", "too late"
    )
    assert await recorder.flush(timeout_s=30)
    await recorder.stop()
    await finalizers.remove(admin, api_resources.CONFIG_MAPS, made, finalizer=_FINALIZER)


async def test_server_away_for_a_moment_is_unavailable_and_then_back(
    kube: kube_cluster.Kube, admin: client.Client
) -> None:
    kube.stop_part("kube-apiserver")
    try:
        with pytest.raises(errors.Unavailable, match="cannot reach"):
            await admin.create(api_resources.CONFIG_MAPS, _map("away"))
    finally:
        kube.start_part("kube-apiserver")

    async def back() -> bool:
        with contextlib.suppress(errors.Unavailable, errors.Forbidden):
            await admin.create(api_resources.CONFIG_MAPS, _map("back"))
            return True
        return False

    await waiting.wait_until_async(back, what="the server takes writes")
