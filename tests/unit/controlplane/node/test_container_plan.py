"""From a Pod to the order to start its container; what would escape is refused."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.controlplane.node import (
    container_input_types,
    container_plan,
    errors,
    pod_types,
    volume_sources,
)
from kilnwork.kit import mount_path_resolution

ROOT = Path("/pods/uid/root")
FACTS = container_input_types.NodeFacts(
    node="n1",
    address="127.0.0.1",
    workdir="/work",
    env={"PATH": "/bin", "HOME": "/root"},
    service_env={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "7443"},
)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> pod_types.Pod:
    main = {"name": "main", "image": "x", "command": ["run"], **(container or {})}
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u-1",
        "labels": {"a/b": "c"},
        "annotations": {},
    }
    obj = {"metadata": metadata, "spec": {"containers": [main], **spec}}
    return msgspec.convert(obj, pod_types.Pod)


def secret(**data: bytes) -> dict[str, Any]:
    return {"data": {k: base64.b64encode(v).decode() for k, v in data.items()}}


def make(
    of: pod_types.Pod, found: container_input_types.Found | None = None
) -> container_plan.ContainerPlan:
    main = of.spec.containers[0]
    return container_plan.make(of, main, found=found or {}, facts=FACTS, root=ROOT)


def files(
    of: pod_types.Pod,
    found: container_input_types.Found | None = None,
    *,
    tokens: container_input_types.Tokens | None = None,
) -> tuple[volume_sources.VolumeContent, ...]:
    context = volume_sources.VolumeContext(of, found or {}, tokens or {}, FACTS)
    return tuple(volume_sources.volume(v, context) for v in of.spec.volumes or ())


def variables(
    env: list[dict[str, Any]], found: container_input_types.Found | None = None
) -> dict[str, str]:
    return make(pod({"env": env}), found).env


def test_environment_inherits_only_path_and_home() -> None:
    assert make(pod()).env == {
        "PATH": "/bin",
        "HOME": "/root",
        "HOSTNAME": "p",
        mount_path_resolution.VARIABLE: str(ROOT),
    }


def test_working_directory_defaults_to_the_nodes() -> None:
    assert make(pod()).cwd == "/work"
    assert make(pod({"workingDir": "/srv"})).cwd == "/srv"


def test_variables_can_refer_to_earlier_ones() -> None:
    env = variables([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}])
    assert (env["A"], env["B"]) == ("1", "1$(C)")


def test_command_and_arguments_are_expanded() -> None:
    container = {
        "command": ["$(A)", "-c"],
        "args": ["$(A)$$"],
        "env": [{"name": "A", "value": "x"}],
    }
    assert make(pod(container)).argv == ["x", "-c", "x$"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['a/b']", "c"),
        ("metadata.annotations['none']", ""),
        ("spec.nodeName", "n1"),
        ("status.podIP", "127.0.0.1"),
    ],
)
def test_fields_become_variables(path: str, value: str) -> None:
    assert variables([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}])["A"] == value


def test_unknown_field_blocks_the_container_by_name() -> None:
    with pytest.raises(errors.InputsNotReady, match=r"unsupported fieldPath: spec\.priority"):
        variables([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.priority"}}}])


def test_keys_of_objects_become_variables() -> None:
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ]
    found: container_input_types.Found = {
        ("Secret", "s"): secret(k=b"\xff!"),
        ("ConfigMap", "c"): {"data": {"k": "v"}},
    }
    got = variables(env, found)
    assert got["A"].encode("utf-8", "surrogateescape") == b"\xff!"
    assert got["B"] == "v"


def test_missing_object_blocks_the_container_with_kubelet_message() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    with pytest.raises(errors.InputsNotReady, match=r'^secret "s" not found$') as raised:
        variables(env, {("Secret", "s"): None})
    assert raised.value.reason == "CreateContainerConfigError"
    with pytest.raises(errors.InputsNotReady, match=r"^couldn't find key k in Secret ns/s$"):
        variables(env, {("Secret", "s"): secret(other=b"")})


def test_missing_optional_key_omits_the_variable() -> None:
    reference = {"name": "s", "key": "k", "optional": True}
    env = [{"name": "A", "valueFrom": {"secretKeyRef": reference}}]
    assert "A" not in variables(env, {("Secret", "s"): None})


def test_env_overrides_env_from() -> None:
    container = {
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
        "env": [{"name": "P_b", "value": "mine"}],
    }
    found: container_input_types.Found = {
        ("ConfigMap", "c"): {"data": {"a": "1", "b": "2", "c=d": "3"}}
    }
    env = make(pod(container), found).env
    assert (env["P_a"], env["P_b"]) == ("1", "mine")
    assert not any("=" in name for name in env)


def test_wanted_names_every_object_once_per_use() -> None:
    container = {
        "envFrom": [{"secretRef": {"name": "s1"}}],
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}}],
    }
    volumes = [
        {"name": "v1", "secret": {"secretName": "s2", "optional": True}},
        {"name": "v2", "configMap": {"name": "c2"}},
        {"name": "v3", "emptyDir": {}},
    ]
    of = pod(container, volumes=volumes)
    assert [*container_plan.wanted(of.spec.containers[0]), *volume_sources.wanted(of)] == [
        ("Secret", "s1", False),
        ("ConfigMap", "c1", False),
        ("Secret", "s2", True),
        ("ConfigMap", "c2", False),
    ]


def test_service_account_adds_server_address_and_mount() -> None:
    with_account = make(pod(serviceAccountName="sa"))
    assert with_account.env["KUBERNETES_SERVICE_PORT"] == "7443"
    assert with_account.links == (
        container_plan.MountLink("var/run/secrets/kubernetes.io/serviceaccount", ""),
    )
    without = make(pod(serviceAccountName="sa", automountServiceAccountToken=False))
    assert "KUBERNETES_SERVICE_HOST" not in without.env
    assert without.links == ()


def test_args_without_command_are_the_command() -> None:
    assert make(pod({"command": None, "args": ["echo", "x"]})).argv == ["echo", "x"]


@pytest.mark.parametrize("args", [None, [], ["--for", "entrypoint"]])
def test_container_without_command_is_blocked_with_reason(args: list[str] | None) -> None:
    with pytest.raises(errors.InputsNotReady, match="images are labels"):
        make(pod({"command": None, "args": args}))


def test_volumes_contain_all_keys_or_selected_items() -> None:
    volumes = [
        {"name": "all", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {
            "name": "some",
            "configMap": {"name": "c", "items": [{"key": "k", "path": "x/y", "mode": 0o600}]},
        },
    ]
    found: container_input_types.Found = {
        ("Secret", "s"): secret(a=b"1"),
        ("ConfigMap", "c"): {"data": {"k": "v", "z": ""}, "binaryData": {"b": "AA=="}},
    }
    assert files(pod(volumes=volumes), found) == (
        ("all", (("a", b"1", 0o400),)),
        ("some", (("x/y", b"v", 0o600),)),
    )


def test_missing_volume_source_names_volume_and_object() -> None:
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    text = 'MountVolume.SetUp failed for volume "v" : secret "s" not found'
    with pytest.raises(errors.InputsNotReady, match=text):
        files(pod(volumes=volumes), {("Secret", "s"): None})


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", ".", "a\0b", "a/.."])
def test_path_that_leaves_its_directory_is_unsupported(path: str) -> None:
    with pytest.raises(errors.Unsupported):
        volume_sources.normalize_inside(path)


@pytest.mark.parametrize("key", ["..", "../../etc/passwd", "a/b", ".", "..data"])
def test_key_that_is_no_file_name_is_unsupported(key: str) -> None:
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    with pytest.raises(errors.Unsupported, match="cannot be the name of a file"):
        files(pod(volumes=volumes), {("ConfigMap", "c"): {"data": {key: "x"}}})


@pytest.mark.parametrize(
    "mount",
    [
        {"mountPath": "/a/../../../etc"},
        {"mountPath": "/"},
        {"mountPath": "/a", "subPath": "../../x"},
        {"mountPath": "/a", "subPath": "/etc"},
    ],
)
def test_mount_that_escapes_the_root_fails_the_pod(mount: dict[str, str]) -> None:
    container = {"volumeMounts": [{"name": "v", **mount}]}
    assert container_plan.refusal(pod(container, volumes=[{"name": "v", "emptyDir": {}}]))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"containers": [{"name": "a"}, {"name": "../b"}]}, '"../b" is not a valid container name'),
        (
            {"containers": [{"name": "a", "livenessProbe": {"grpc": {"port": 1}}}]},
            "spec.containers[0].livenessProbe.grpc: refused",
        ),
        ({"volumes": [{"name": "v", "nfs": {}}]}, 'volume "v" is of type nfs'),
        ({"volumes": [{"name": "v", "nfs": {"path": "/"}}]}, "spec.volumes[0].nfs: refused"),
        ({"runtimeClassName": "gvisor"}, "spec.runtimeClassName: refused by nodes of kilnwork: "),
        ({"volumes": [{"name": "../v", "emptyDir": {}}]}, "not a valid volume name"),
    ],
)
def test_unsupported_pod_is_refused_with_the_field(spec: dict[str, Any], text: str) -> None:
    assert text in container_plan.refusal(pod(**spec))


def test_ordinary_pod_is_not_refused() -> None:
    assert container_plan.refusal(pod()) == ""


def test_outer_mounts_come_before_inner_ones() -> None:
    mounts = [{"name": "v", "mountPath": "/a/b/c"}, {"name": "v", "mountPath": "/a/b/"}]
    links = make(pod({"volumeMounts": mounts}, volumes=[{"name": "v", "emptyDir": {}}])).links
    assert [link.path for link in links] == ["a/b", "a/b/c"]


PROJECTED = {
    "name": "kube-api-access-x",
    "projected": {
        "defaultMode": 0o444,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    },
}
"""What the ServiceAccount admission of kube-apiserver adds to a Pod."""


def test_projected_volume_contains_token_ca_and_namespace() -> None:
    mount = {"name": "kube-api-access-x", "mountPath": container_plan.ACCOUNT_PATH}
    of = pod({"volumeMounts": [mount]}, volumes=[PROJECTED], serviceAccountName="default")
    [want] = volume_sources.tokens(of)
    assert want == ("", 3607)
    found: container_input_types.Found = {
        ("ConfigMap", "kube-root-ca.crt"): {"data": {"ca.crt": "pem"}}
    }
    assert files(of, found, tokens={want: "secret"})[0].files == (
        ("token", b"secret", 0o444),
        ("ca.crt", b"pem", 0o444),
        ("namespace", b"ns", 0o444),
    )
    assert [link.volume for link in make(of).links] == ["kube-api-access-x"]
    assert not container_plan.uses_account(of, mounts_accounts=True)


def test_downward_volume_contains_labels_and_resources() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {
            "path": "cpu",
            "resourceFieldRef": {
                "containerName": "main",
                "resource": "limits.cpu",
                "divisor": "1m",
            },
        },
    ]
    container = {"resources": {"limits": {"cpu": "1500m"}}}
    of = pod(container, volumes=[{"name": "v", "downwardAPI": {"items": items}}])
    assert files(of)[0].files == (
        ("labels", b'a/b="c"', 0o644),
        ("cpu", b"1500", 0o644),
    )


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.memory", "1Mi", "64"),
        ("requests.memory", "1", "67108864"),
        ("limits.cpu", "0", "4"),
        ("requests.cpu", "0", "0"),
    ],
)
def test_resources_become_variables(resource: str, divisor: str, value: str) -> None:
    source = {"resourceFieldRef": {"resource": resource, "divisor": divisor}}
    container = {
        "resources": {"limits": {"memory": "64Mi"}},
        "env": [{"name": "A", "valueFrom": source}],
    }
    of = pod(container)
    facts = FACTS._replace(capacity={"cpu": "4"})
    done = container_plan.make(of, of.spec.containers[0], found={}, facts=facts, root=ROOT)
    assert done.env["A"] == value


def test_sub_path_is_expanded_from_the_environment() -> None:
    mount = {"name": "v", "mountPath": "/a", "subPathExpr": "x/$(POD)"}
    env = [{"name": "POD", "value": "p-1"}]
    of = pod({"env": env, "volumeMounts": [mount]}, volumes=[{"name": "v", "emptyDir": {}}])
    assert make(of).links[0].sub == "x/p-1"


VALUES = {"A": "1", "B": "$(A)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(EMPTY)", ""),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(A)"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
    ],
)
def test_references_to_variables_are_expanded(text: str, expanded: str) -> None:
    assert container_plan.expand(text, VALUES) == expanded
