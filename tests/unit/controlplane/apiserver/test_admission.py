"""Admission: what is filled in, and what is refused, with which response."""

from typing import Any

import pytest

from kilnwork.api import admission as rules
from kilnwork.api import api_resources, kinds
from kilnwork.controlplane.apiserver import admission, authn, statuses
from support import memory_lookup, served_kinds

Json = dict[str, Any]


@pytest.fixture
def stored() -> memory_lookup.MemoryLookup:
    return memory_lookup.MemoryLookup(
        (api_resources.NAMESPACES, {"metadata": {"name": "default"}}),
        (
            api_resources.SERVICE_ACCOUNTS,
            {"metadata": {"name": "default", "namespace": "default", "uid": "u"}},
        ),
    )


def metadata(name: str = "x", **more: Any) -> Json:
    return {"name": name, "namespace": "default", **more}


def pod(**spec: Any) -> Json:
    container = {"name": "main", "image": "busybox"}
    return {"metadata": metadata(), "spec": {"containers": [container], **spec}}


async def create(
    stored: memory_lookup.MemoryLookup,
    kind: api_resources.Resource,
    obj: Json,
    *,
    user: authn.User = authn.ADMIN,
    field_validation: str = "Warn",
) -> admission.AdmissionResult:
    asked = admission.AdmissionRequest(
        operation="create",
        kind=kind,
        new=obj,
        field_validation=field_validation,
        served=served_kinds.kind_of(kind),
    )
    return await admission.admit(asked, user=user, reader=stored)


async def update(
    stored: memory_lookup.MemoryLookup,
    kind: api_resources.Resource,
    old: Json,
    new: Json,
    *,
    subresource: str = "",
) -> admission.AdmissionResult:
    asked = admission.AdmissionRequest(
        operation="update",
        kind=kind,
        old=old,
        new=new,
        subresource=subresource,
        served=served_kinds.kind_of(kind),
    )
    return await admission.admit(asked, user=authn.ADMIN, reader=stored)


async def refusal(
    stored: memory_lookup.MemoryLookup, kind: api_resources.Resource, obj: Json
) -> Any:
    with pytest.raises(statuses.StatusError) as caught:
        await create(stored, kind, obj)
    return caught.value


REFUSED_BY_NOW: Json = {
    "command": ["a\0b"], "clusterName": "default", "outputType": "json", "run": 1,
}  # fmt: skip
"""The spec of a Task from before a rule."""


class TestOurKinds:
    async def test_defaults_are_filled_in_and_unknown_fields_warned_about(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {"metadata": metadata(foo=1), "spec": {"command": ["a"], "bar": 2}}
        admitted = await create(stored, kinds.TASKS, given)
        assert admitted.obj["spec"] == {
            "command": ["a"],
            "clusterName": "default",
            "outputType": "json",
            "run": 1,
        }
        assert admitted.warnings == (
            'unknown field "spec.bar"',
            'unknown field "metadata.foo"',
        )
        assert given["spec"] == {"command": ["a"], "bar": 2}

    async def test_strict_validation_rejects_unknown_fields(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {"metadata": metadata(), "spec": {"foo": 1}}
        with pytest.raises(statuses.StatusError, match=r'strict decoding error: .*"spec\.foo"'):
            await create(stored, kinds.TASKS, given, field_validation="Strict")

    async def test_schema_and_rule_violations_are_in_one_response(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        error = await refusal(stored, kinds.TASKS, {"metadata": metadata("A"), "spec": {"run": 0}})
        assert error.code == 422
        assert [c["field"] for c in error.details["causes"]] == ["metadata.name", "spec.run"]

    async def test_registered_rules_are_validated(self, stored: memory_lookup.MemoryLookup) -> None:
        spec = {"inputs": [{"name": "a", "path": "$["}]}
        error = await refusal(stored, kinds.TASKS, {"metadata": metadata(), "spec": spec})
        fields = [c["field"] for c in error.details["causes"]]
        assert fields == ["spec.inputs[0]", "spec.inputs[0].path"]

    @pytest.mark.parametrize(
        "template",
        [
            {"spec": 5},
            {"metadata": {"labels": 5}},
            {"spec": {"containers": 5}},
            {"spec": {"containers": [{"env": 5}]}},
        ],
    )
    async def test_pod_template_of_wrong_shape_is_rejected(
        self, stored: memory_lookup.MemoryLookup, template: Json
    ) -> None:
        given = {"metadata": metadata(), "spec": {"template": template}}
        error = await refusal(stored, kinds.TASK_CLUSTERS, given)
        assert error.message.count("spec.template: Invalid value") == 1

    async def test_status_is_dropped_on_create(self, stored: memory_lookup.MemoryLookup) -> None:
        given = {"metadata": metadata(), "spec": {}, "status": {"state": "Success"}}
        assert "status" not in (await create(stored, kinds.TASKS, given)).obj

    async def test_task_object_is_immutable(self, stored: memory_lookup.MemoryLookup) -> None:
        old = {"metadata": metadata(), "data": {"count": "0"}}
        new = {"metadata": metadata(), "data": {"count": "1"}}
        with pytest.raises(statuses.StatusError) as caught:
            await update(stored, kinds.TASK_OBJECTS, old, new)
        assert caught.value.message == (
            'TaskObject.kilnwork.dev "x" is invalid: '
            'data: Invalid value: {"count":"1"}: field is immutable'
        )

    async def test_labels_of_a_task_object_may_change(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {"metadata": metadata(), "data": [1]}
        new = {"metadata": metadata(labels={"a": "b"}), "data": [1]}
        assert (await update(stored, kinds.TASK_OBJECTS, old, new)).obj == new

    async def test_lower_run_number_is_rejected(self, stored: memory_lookup.MemoryLookup) -> None:
        old = {"metadata": metadata(), "spec": {"run": 2}}
        new = {"metadata": metadata(), "spec": {"run": 1}}
        with pytest.raises(statuses.StatusError, match="run may only rise"):
            await update(stored, kinds.TASKS, old, new)
        await update(stored, kinds.TASKS, new, old)

    async def test_changed_work_without_new_run_gives_warning(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = (await create(stored, kinds.TASKS, {"metadata": metadata(), "spec": {}})).obj
        changed = {**old, "spec": {**old["spec"], "command": ["b"]}}
        again = {**old, "spec": {**old["spec"], "command": ["b"], "run": 2}}
        killed = {**old, "spec": {**old["spec"], "killTimestamp": "2026-01-01T00:00:00Z"}}
        assert (await update(stored, kinds.TASKS, old, changed)).warnings == (rules.RUN_UNCHANGED,)
        assert (await update(stored, kinds.TASKS, old, again)).warnings == ()
        assert (await update(stored, kinds.TASKS, old, killed)).warnings == ()

    async def test_status_is_validated_by_its_schema(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {"metadata": metadata(), "spec": {"run": 1}}
        good = {**old, "status": {"state": "Success", "attempts": 1}}
        bad = {**old, "status": {"attempts": "one"}}
        found = await update(stored, kinds.TASKS, old, good, subresource="status")
        assert found.obj["status"] == good["status"]
        with pytest.raises(statuses.StatusError, match=r"status\.attempts"):
            await update(stored, kinds.TASKS, old, bad, subresource="status")

    async def test_status_can_be_written_after_schema_became_stricter(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {"metadata": metadata(), "spec": {"run": 0}}
        new = {**old, "status": {"attempts": 1}}
        found = await update(stored, kinds.TASKS, old, new, subresource="status")
        assert found.obj["status"] == {"attempts": 1}

    @pytest.mark.parametrize(
        "change",
        [
            {"metadata": metadata(finalizers=[])},
            {"spec": {**REFUSED_BY_NOW, "killTimestamp": "2026-01-01T00:00:00Z"}},
        ],
    )
    async def test_object_that_predates_a_rule_can_be_deleted_and_released(
        self, stored: memory_lookup.MemoryLookup, change: Json
    ) -> None:
        old = {"metadata": metadata(finalizers=["x.io/f"]), "spec": REFUSED_BY_NOW}
        assert (await update(stored, kinds.TASKS, old, {**old, **change})).obj == {**old, **change}

    async def test_changed_fields_must_satisfy_present_rules(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {"metadata": metadata(), "spec": REFUSED_BY_NOW}
        new = {**old, "spec": {**REFUSED_BY_NOW, "command": ["a\0c"]}}
        with pytest.raises(statuses.StatusError, match=r"spec\.command\[0\]"):
            await update(stored, kinds.TASKS, old, new)


class TestNamespaces:
    async def test_missing_namespace_is_not_found(self, stored: memory_lookup.MemoryLookup) -> None:
        error = await refusal(
            stored, api_resources.SECRETS, {"metadata": {"name": "x", "namespace": "nope"}}
        )
        assert (error.code, error.message) == (404, 'namespaces "nope" not found')

    async def test_creation_in_terminating_namespace_is_forbidden(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        ending = {"metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        stored.add(api_resources.NAMESPACES, ending)
        error = await refusal(
            stored, api_resources.SECRETS, {"metadata": {"name": "x", "namespace": "old"}}
        )
        assert error.code == 403
        assert "because it is being terminated" in error.message
        assert error.details["causes"][0]["reason"] == "NamespaceTerminating"

    async def test_new_namespace_gets_label_and_phase(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        made = (await create(stored, api_resources.NAMESPACES, {"metadata": {"name": "a"}})).obj
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
        assert made["status"] == {"phase": "Active"}

    async def test_namespace_name_must_be_a_dns_label(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        error = await refusal(stored, api_resources.NAMESPACES, {"metadata": {"name": "a_b"}})
        assert "RFC 1123 label" in error.message


class TestMetadata:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"labels": {"-": "x"}}, "metadata.labels"),
            ({"labels": {"a": "-"}}, "metadata.labels"),
            ({"annotations": {"a b": "x"}}, "metadata.annotations"),
            ({"annotations": {"a": "x" * 262_144}}, "metadata.annotations"),
            ({"finalizers": ["a b"]}, "metadata.finalizers"),
            ({"generateName": "A-"}, "metadata.generateName"),
            ({"ownerReferences": [{"kind": "Task"}]}, "metadata.ownerReferences.apiVersion"),
        ],
    )
    async def test_wrong_field_is_named_in_the_error(
        self, stored: memory_lookup.MemoryLookup, change: Json, field: str
    ) -> None:
        error = await refusal(stored, api_resources.CONFIG_MAPS, {"metadata": metadata(**change)})
        assert error.code == 422
        assert error.details["causes"][0]["field"] == field

    async def test_wrong_type_is_a_bad_request(self, stored: memory_lookup.MemoryLookup) -> None:
        error = await refusal(
            stored, kinds.TASKS, {"metadata": metadata(labels={"a": 1}), "spec": {}}
        )
        assert error.code == 400
        assert 'Task in version "v1alpha1" cannot be handled as a Task' in error.message

    async def test_name_cannot_change(self, stored: memory_lookup.MemoryLookup) -> None:
        with pytest.raises(statuses.StatusError, match=r"metadata\.name: .*field is immutable"):
            await update(
                stored,
                api_resources.CONFIG_MAPS,
                {"metadata": metadata()},
                {"metadata": metadata("y")},
            )

    async def test_finalizer_cannot_be_added_during_deletion(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {"metadata": metadata(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])}
        new = {"metadata": {**old["metadata"], "finalizers": ["a/b", "c/d"]}}
        with pytest.raises(statuses.StatusError, match="no new finalizers can be added"):
            await update(stored, api_resources.CONFIG_MAPS, old, new)

    async def test_two_controller_references_are_rejected(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": True}
        error = await refusal(
            stored,
            api_resources.CONFIG_MAPS,
            {"metadata": metadata(ownerReferences=[owner, owner])},
        )
        assert "Only one reference can have Controller set to true" in error.message


class TestPods:
    async def test_pod_gets_kubernetes_defaults(self, stored: memory_lookup.MemoryLookup) -> None:
        made = (await create(stored, api_resources.PODS, pod())).obj
        spec = made["spec"]
        assert spec["restartPolicy"] == "Always"
        assert spec["terminationGracePeriodSeconds"] == 30
        assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
        assert spec["containers"][0]["imagePullPolicy"] == "Always"
        assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}

    async def test_missing_service_account_is_forbidden_by_name(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        error = await refusal(stored, api_resources.PODS, pod(serviceAccountName="robot"))
        assert error.code == 403
        assert error.message == (
            'pods "x" is forbidden: error looking up service account default/robot: '
            'serviceaccount "robot" not found'
        )

    async def test_pod_overrides_automount_setting_of_its_account(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        stored.add(
            api_resources.SERVICE_ACCOUNTS,
            {
                "metadata": {"name": "quiet", "namespace": "default"},
                "automountServiceAccountToken": False,
            },
        )
        made = await create(stored, api_resources.PODS, pod(serviceAccountName="quiet"))
        assert made.obj["spec"]["automountServiceAccountToken"] is False
        wanted = pod(serviceAccountName="quiet", automountServiceAccountToken=True)
        made = await create(stored, api_resources.PODS, wanted)
        assert made.obj["spec"]["automountServiceAccountToken"] is True

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"containers": []}, "spec.containers: Required value"),
            (
                {"containers": [{"name": "a"}]},
                "spec.containers[0].image: Required value",
            ),
            (
                {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]},
                'spec.containers[1].name: Duplicate value: "a"',
            ),
            (
                {"restartPolicy": "Sometimes"},
                (
                    'spec.restartPolicy: Unsupported value: "Sometimes": '
                    'supported values: "Always", "OnFailure", "Never"'
                ),
            ),
            ({"volumes": [{"name": "v"}]}, "spec.volumes[0]: Required value: must specify a"),
            (
                {"volumes": [{"name": "v", "emptyDir": {}, "secret": {}}]},
                "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
            ),
            (
                {"terminationGracePeriodSeconds": -1},
                "spec.terminationGracePeriodSeconds: Invalid value: -1",
            ),
        ],
    )
    async def test_invalid_pod_fields_are_rejected(
        self, stored: memory_lookup.MemoryLookup, spec: Json, text: str
    ) -> None:
        error = await refusal(stored, api_resources.PODS, pod(**spec))
        assert error.message.startswith(f'Pod "x" is invalid: {text}')

    @pytest.mark.parametrize(
        ("container", "text"),
        [
            ({"name": "A"}, 'name: Invalid value: "A": a lowercase RFC 1123 label'),
            ({"env": [{"name": "A=B"}]}, 'env[0].name: Invalid value: "A=B": a valid environment'),
            (
                {"env": [{"name": "A", "valueFrom": {}}]},
                'env[0].valueFrom: Invalid value: "": must specify one of',
            ),
            (
                {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {}}}]},
                'env[0].valueFrom: Invalid value: "": may not be specified when `value`',
            ),
            (
                {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
                "env[0].valueFrom.fieldRef.fieldPath: Required value",
            ),
            (
                {"volumeMounts": [{"name": "v", "mountPath": "/a"}]},
                'volumeMounts[0].name: Not found: "v"',
            ),
        ],
    )
    async def test_container_errors_name_the_field(
        self, stored: memory_lookup.MemoryLookup, container: Json, text: str
    ) -> None:
        given = {"name": "main", "image": "i", **container}
        error = await refusal(stored, api_resources.PODS, pod(containers=[given]))
        assert error.message.startswith(f'Pod "x" is invalid: spec.containers[0].{text}')

    async def test_mount_paths_that_leave_the_volume_are_rejected(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        mounts = [
            {"name": "v", "mountPath": "/a/../../b"},
            {"name": "v", "mountPath": "/c", "subPath": "../x"},
        ]
        given = {"name": "main", "image": "i", "volumeMounts": mounts}
        volumes = [{"name": "v", "emptyDir": {}}]
        error = await refusal(stored, api_resources.PODS, pod(containers=[given], volumes=volumes))
        assert error.message.count("must not contain '..'") == 2

    @pytest.mark.parametrize(
        "given",
        [
            {"metadata": metadata(), "spec": []},
            {"metadata": metadata(), "spec": {"containers": {"name": "a"}}},
            {"metadata": metadata(), "spec": {"containers": [{"env": ["A=B"]}]}},
            {"metadata": metadata(), "spec": {"containers": [{"resources": {"limits": 3}}]}},
            {"metadata": metadata(), "spec": {"terminationGracePeriodSeconds": "5"}},
            {"metadata": metadata(), "spec": {"terminationGracePeriodSeconds": 10**30}},
            pod(containers=[{"env": [{"name": "A", "valueFrom": {"secretKeyRef": 5}}]}]),
            pod(containers=[{"envFrom": [{"secretRef": {"name": 5}}]}]),
            pod() | {"status": {"phase": 7}},
            pod() | {"status": {"containerStatuses": 5}},
        ],
    )
    async def test_wrong_types_are_bad_requests(
        self, stored: memory_lookup.MemoryLookup, given: Json
    ) -> None:
        error = await refusal(stored, api_resources.PODS, given)
        assert error.code == 400
        assert "cannot be handled as a Pod" in error.message

    @pytest.mark.parametrize("spec", [None, {}, {"containers": None}])
    async def test_pod_without_containers_is_rejected(
        self, stored: memory_lookup.MemoryLookup, spec: Any
    ) -> None:
        error = await refusal(stored, api_resources.PODS, {"metadata": metadata(), "spec": spec})
        assert "spec.containers: Required value" in error.message

    async def test_pod_update_of_fixed_field_is_forbidden(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = (await create(stored, api_resources.PODS, pod())).obj
        container = {**old["spec"]["containers"][0], "image": "other"}
        image = {**old, "spec": {**old["spec"], "containers": [container]}}
        await update(stored, api_resources.PODS, old, image)
        node = {**old, "spec": {**old["spec"], "nodeName": "elsewhere"}}
        with pytest.raises(statuses.StatusError, match="pod updates may not change fields"):
            await update(stored, api_resources.PODS, old, node)


class TestSecretsAndConfigMaps:
    async def test_string_data_of_secret_becomes_data(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {
            "metadata": metadata(),
            "data": {"a": "YQ==", "b": "Yg=="},
            "stringData": {"b": "new"},
        }
        made = (await create(stored, api_resources.SECRETS, given)).obj
        assert made["data"] == {"a": "YQ==", "b": "bmV3"}
        assert "stringData" not in made
        assert made["type"] == "Opaque"

    async def test_secret_data_must_be_base64_and_is_not_in_the_error(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {"metadata": metadata(), "data": {"password": "hunter2!"}}
        error = await refusal(stored, api_resources.SECRETS, given)
        assert error.code == 400
        assert "illegal base64 data" in error.message
        assert "hunter2" not in error.message

    async def test_secret_keys_sizes_and_types_are_validated(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        error = await refusal(
            stored, api_resources.SECRETS, {"metadata": metadata(), "data": {"a/b": ""}}
        )
        assert 'data[a/b]: Invalid value: "a/b": a valid config key' in error.message
        large = {"metadata": metadata(), "stringData": {"a": "x" * (1024 * 1024 + 1)}}
        error = await refusal(stored, api_resources.SECRETS, large)
        assert "data: Too long: may not be more than 1048576 bytes" in error.message
        tls = {"metadata": metadata(), "type": "kubernetes.io/tls"}
        error = await refusal(stored, api_resources.SECRETS, tls)
        assert "data[tls.crt]: Required value" in error.message

    async def test_immutable_secret_cannot_change(self, stored: memory_lookup.MemoryLookup) -> None:
        old = {"metadata": metadata(), "data": {"a": "x"}, "immutable": True}
        new = {"metadata": metadata(), "data": {"a": "y"}}
        with pytest.raises(statuses.StatusError) as caught:
            await update(stored, api_resources.CONFIG_MAPS, old, new)
        assert [c["field"] for c in caught.value.details["causes"]] == ["immutable", "data"]
        with pytest.raises(statuses.StatusError, match=r"type: .*field is immutable"):
            await update(
                stored,
                api_resources.SECRETS,
                {"metadata": metadata(), "type": "Opaque"},
                {"metadata": metadata(), "type": "other"},
            )

    async def test_key_in_both_data_and_binary_data_is_rejected(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {"metadata": metadata(), "data": {"a": "x"}, "binaryData": {"a": "YQ=="}}
        error = await refusal(stored, api_resources.CONFIG_MAPS, given)
        assert "duplicate of key present in binaryData" in error.message


GROUP = "rbac.authorization.k8s.io"
ROBOT = authn.User("system:serviceaccount:default:robot", groups=("system:authenticated",))


class TestRoles:
    async def test_incomplete_role_rules_are_rejected(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        error = await refusal(
            stored, api_resources.ROLES, {"metadata": metadata(), "rules": [{"verbs": []}]}
        )
        assert [c["field"] for c in error.details["causes"]] == [
            "rules[0].verbs",
            "rules[0].apiGroups",
            "rules[0].resources",
        ]

    async def test_role_binding_gets_default_api_groups(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        given = {
            "metadata": metadata(),
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u"}],
        }
        made = (await create(stored, api_resources.ROLE_BINDINGS, given)).obj
        assert made["roleRef"]["apiGroup"] == GROUP
        assert made["subjects"][0]["apiGroup"] == GROUP

    async def test_role_of_a_binding_cannot_change(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        old = {
            "metadata": metadata(),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"},
        }
        new = {"metadata": metadata(), "roleRef": {**old["roleRef"], "name": "s"}}
        with pytest.raises(statuses.StatusError, match="cannot change roleRef"):
            await update(stored, api_resources.ROLE_BINDINGS, old, new)

    async def test_users_cannot_grant_permissions_they_lack(
        self, stored: memory_lookup.MemoryLookup
    ) -> None:
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        given = {"metadata": metadata("r"), "rules": [rule]}
        with pytest.raises(statuses.StatusError) as caught:
            await create(stored, api_resources.ROLES, given, user=ROBOT)
        assert caught.value.code == 403
        assert "is attempting to grant RBAC permissions not currently held" in caught.value.message
        assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}' in caught.value.message
        stored.add(api_resources.ROLES, (await create(stored, api_resources.ROLES, given)).obj)
        binding = {
            "metadata": metadata("b"),
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": ROBOT.name}],
        }
        with pytest.raises(statuses.StatusError, match="not currently held"):
            await create(stored, api_resources.ROLE_BINDINGS, binding, user=ROBOT)
        stored.add(
            api_resources.ROLE_BINDINGS,
            (await create(stored, api_resources.ROLE_BINDINGS, binding)).obj,
        )
        await create(stored, api_resources.ROLES, {**given, "metadata": metadata("s")}, user=ROBOT)
