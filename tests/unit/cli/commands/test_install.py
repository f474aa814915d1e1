"""What `kiln install` prints, and what it refuses."""

import functools
import json
from typing import Any

import click
import pytest
import yaml
from click import testing

from kilnwork.cli.commands import install, manager
from kilnwork.cli.installation import rights, settings


def printed(*arguments: str) -> str:
    done = testing.CliRunner().invoke(install.command, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@functools.cache
def objects(*arguments: str) -> dict[str, dict[str, Any]]:
    found = yaml.load_all(printed(*arguments), yaml.CSafeLoader)  # ten times as fast
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


def container(*arguments: str) -> dict[str, Any]:
    pod = objects(*arguments)["StatefulSet/kilnwork-manager"]["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0]
    return found


def refused(*arguments: str) -> str:
    done = testing.CliRunner().invoke(install.command, arguments)
    assert done.exit_code == 2
    return done.output


def test_same_options_print_the_same_text() -> None:
    assert printed("--drivers-in", "a") == printed("--drivers-in", "a")
    assert "&id" not in printed()


def test_namespace_comes_first_and_the_pod_last() -> None:
    order = list(objects())
    assert order[0] == "Namespace/kilnwork-system"
    assert order[-1] == "StatefulSet/kilnwork-manager"


def test_json_is_one_list() -> None:
    found = json.loads(printed("-o", "json"))
    assert found["kind"] == "List"
    assert len(found["items"]) == len(objects())


def test_part_can_be_printed_alone() -> None:
    kinds = {name.partition("/")[0] for name in objects("--only", "crds")}
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert kinds == {"CustomResourceDefinition", *policies}
    parts = [objects("--only", part) for part in settings.PARTS if part != "drivers"]
    assert set().union(*parts) == set(objects())


def test_drivers_alone_change_nothing_of_the_manager() -> None:
    found = objects("--only", "drivers", "--drivers-in", "a")
    kinds, names = ("ServiceAccount", "RoleBinding"), ("kilnwork-driver", "kilnwork-reader")
    assert set(found) == {f"{kind}/{name}" for kind in kinds for name in names}
    assert {one["metadata"]["namespace"] for one in found.values()} == {"a"}


def test_other_namespace_is_set_in_all_objects() -> None:
    found = objects("-n", "elsewhere")
    spaces = {one["metadata"].get("namespace") for one in found.values()}
    assert spaces == {None, "elsewhere"}
    subjects = found["ClusterRoleBinding/kilnwork-manager"]["subjects"]
    assert subjects[0]["namespace"] == "elsewhere"
    assert "--namespace=elsewhere" in container("-n", "elsewhere")["args"]


def test_pod_fulfils_the_restricted_standard() -> None:
    pod = objects()["StatefulSet/kilnwork-manager"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("options", "users"),
    [
        ((), {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}),
        (
            ("--run-as", "7"),
            {"runAsNonRoot": True, "runAsUser": 7, "runAsGroup": 7, "fsGroup": 7},
        ),
        (("--run-as", "node"), {}),
    ],
)
def test_user_is_set_or_left_to_the_node(options: tuple[str, ...], users: dict[str, Any]) -> None:
    pod = objects(*options)["StatefulSet/kilnwork-manager"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {**users, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("options", "volume"),
    [
        ((), None),
        (("--storage", "emptyDir"), {"emptyDir": {}}),
        (
            ("--storage", "hostPath", "--host-path", "/d"),
            {"hostPath": {"path": "/d", "type": "DirectoryOrCreate"}},
        ),
    ],
)
def test_storage_option_selects_the_volume(
    options: tuple[str, ...], volume: dict[str, Any] | None
) -> None:
    spec = objects(*options)["StatefulSet/kilnwork-manager"]["spec"]
    volumes = {one.pop("name"): one for one in spec["template"]["spec"]["volumes"]}
    assert volumes.get("data") == volume
    assert ("volumeClaimTemplates" in spec) == (volume is None)


@pytest.mark.parametrize("where", [(), ("--only-in", "a")])
def test_only_a_manager_with_ponds_may_read_nodes(where: tuple[str, ...]) -> None:
    def reads_nodes(*options: str) -> bool:
        rules = objects(*where, *options)["ClusterRole/kilnwork-manager"]["rules"]
        return any("nodes" in rule["resources"] for rule in rules)

    assert not reads_nodes()
    assert "--ponds" not in container(*where)["args"]
    assert reads_nodes("--ponds")
    assert "--ponds" in container(*where, "--ponds")["args"]


def test_manager_limited_to_namespaces_has_rights_only_there() -> None:
    found = objects("--only-in", "a", "--only-in", "b")
    role = found["ClusterRole/kilnwork-manager"]
    assert {one for rule in role["rules"] for one in rule["resources"]} == {
        "tokenreviews",
        "subjectaccessreviews",
    }
    printed_roles = [
        one["metadata"]["namespace"]
        for one in yaml.safe_load_all(printed("--only-in", "a", "--only-in", "b"))
        if (one["kind"], one["metadata"]["name"]) == ("Role", "kilnwork-manager")
    ]
    assert printed_roles == ["a", "b"]
    assert {"--only-in=a", "--only-in=b"} <= set(
        container("--only-in", "a", "--only-in", "b")["args"]
    )


def test_executors_of_http_requests_are_a_deployment_with_an_account() -> None:
    assert not any("executor" in name for name in objects())
    found = objects("--http-executors", "3", "-n", "home")
    deployment = found["Deployment/kilnwork-executor-http"]["spec"]
    pod = deployment["template"]["spec"]
    [made] = pod["containers"]
    assert deployment["replicas"] == 3
    assert deployment["selector"]["matchLabels"].items() <= (
        deployment["template"]["metadata"]["labels"].items()
    )
    assert pod["serviceAccountName"] == "kilnwork-executor-http"
    assert {"name": "KILN_MANAGER_NAMESPACE", "value": "home"} in made["env"]
    assert made["securityContext"] == container()["securityContext"]
    rules = found["ClusterRole/kilnwork-executor-http"]["rules"]
    assert [rule["resources"] for rule in rules] == [["executors"], ["secrets"], ["services"]]


def test_executors_read_secrets_only_where_the_manager_serves() -> None:
    found = objects("--http-executors", "1", "--only-in", "a")
    rules = found["ClusterRole/kilnwork-executor-http"]["rules"]
    assert [rule["resources"] for rule in rules] == [["executors"]]
    role = found["Role/kilnwork-executor-http"]
    assert (role["metadata"]["namespace"], role["rules"][0]["resources"]) == ("a", ["secrets"])


def test_applying_another_image_repairs_a_broken_one() -> None:
    spec = objects()["StatefulSet/kilnwork-manager"]["spec"]
    assert spec["podManagementPolicy"] == "Parallel"


def test_workers_use_the_managers_image_by_default() -> None:
    assert "--worker-image=a:1" in container("--image", "a:1")["args"]
    assert "--worker-image=b:1" in container("--image", "a:1", "--worker-image", "b:1")["args"]


def test_tolerations_are_written_as_taints() -> None:
    pod = objects("--toleration", "a=b:NoSchedule", "--toleration", "c")[
        "StatefulSet/kilnwork-manager"
    ]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "operator": "Exists"},
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--storage-size", "10 GB"), "is not a quantity"),
        (("--storage", "hostPath"), "belong together"),
        (("--host-path", "/d"), "belong together"),
        (("--storage", "hostPath", "--host-path", "d"), "must begin with /"),
        (("--node-selector", "a"), "KEY=VALUE"),
        (("--toleration", "a:Never"), "PreferNoSchedule"),
        (("--image", ""), "cannot be the name of an image"),
        (("--worker-image", "a b"), "cannot be the name of an image"),
        (("--advertise", "host"), "write HOST:PORT"),
        (("--advertise", "host:port"), "write HOST:PORT"),
        (("--advertise", "https://host:1"), "that others reach"),
        (("--advertise", "0.0.0.0:7443"), "that others reach"),
        (("--callback-url", "kiln.example"), "write http(s)://HOST"),
        (("--callback-url", "https://kiln.example/?a"), "write http(s)://HOST"),
        (("--storage", "emptyDir", "--storage-class", "a"), "is for --storage pvc"),
        (("--only", "drivers"), "--drivers-in NS"),
        (("--only", "rights", "--drivers-in", "a"), "add --only drivers"),
        (("-n", "A_b"), "cannot be the name of a namespace"),
        (("--drivers-in", ""), "cannot be the name of a namespace"),
        (("--run-as", "0"), "not root"),
        (("--run-as", "nobody"), "not root"),
    ],
)
def test_invalid_values_are_rejected(options: tuple[str, ...], text: str) -> None:
    assert text in refused(*options)


def test_every_right_has_its_reason_and_no_wildcard() -> None:
    manager = (*rights.WHERE_SERVED, *rights.FIND, *rights.ASK, *rights.AT_HOME)
    users = (*rights.VIEW, *rights.EDIT, *rights.DRIVE, *rights.PASS)
    for right in (*manager, *users, *rights.SEND, *rights.REVEAL):
        assert right.why.endswith(".") or right.why.endswith("`.")
        assert "*" not in (*right.resources, *right.verbs, right.group)


def test_all_options_have_a_help_text() -> None:
    assert all(o.help for o in install.command.params if isinstance(o, click.Option))


def test_only_given_manager_options_become_arguments() -> None:
    plain = container()["args"]
    assert not any(one.startswith(("--lease", "--max-", "--jobs-")) for one in plain)
    chosen = (
        "--lease",
        "2m",
        "--max-input",
        "10Gi",
        "--jobs-per-second",
        "2.5",
        "--max-files",
        "7",
    )
    wanted = ["--lease=120s", "--max-input=10Gi", "--max-files=7", "--jobs-per-second=2.5"]
    assert [one for one in container(*chosen)["args"] if one not in plain] == wanted
    done = testing.CliRunner().invoke(manager.command, [*container(*chosen)["args"], "--help"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("value", ["9s", "2h", "soon", "-5"])
def test_lease_has_bounds(value: str) -> None:
    assert "--lease" in refused("--lease", value)


def test_log_level_becomes_an_argument() -> None:
    assert container("--log-level", "warning")["args"].count("--verbose") == 0
    assert container()["args"].count("--verbose") == 1
    assert container("--log-level", "debug") == container("-v")


def test_namespace_part_suffices_for_a_server_dry_run() -> None:
    assert list(objects("--only", "namespace", "-n", "a")) == ["Namespace/a"]
    spaces = {one["metadata"].get("namespace") for one in objects("-n", "a").values()}
    assert spaces == {None, "a"}


def test_namespace_enforces_the_standard_that_its_pod_meets() -> None:
    def enforced(*arguments: str) -> str | None:
        labels = objects(*arguments)["Namespace/kilnwork-system"]["metadata"]["labels"]
        found: str | None = labels.get("pod-security.kubernetes.io/enforce")
        return found

    assert enforced() == "restricted"
    assert enforced("--run-as", "node") == "baseline"
    assert enforced("--storage", "hostPath", "--host-path", "/a") is None
