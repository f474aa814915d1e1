"""Jobs and JobConfigs: what is accepted, refused, changed and shown."""

import json
from typing import Any

import pytest

from support import job_manifests, kube_servers
from support.kube_servers import MERGE
from support.kube_tables import cells, table

VERSION = "kilnwork.dev/v1alpha1"
KILN = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/"
TASK = {"command": ["true"]}
TEMPLATE = {"taskTemplate": TASK}
CONFIG = {"template": {"spec": TEMPLATE}, "concurrency": {"policy": "Forbid"}}
BEFORE: dict[str, Any] = {
    "run": 2,
    "substitutions": {"option.x": "1"},
    "template": {**TEMPLATE, "parallelism": {"withCount": 2, "maxInFlight": 1}, "maxAttempts": 2},
}
PLURALS = {"Job": "jobs", "JobConfig": "jobconfigs"}


def body(kind: str, spec: Any, name: str = "x") -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def create(admin: kube_servers.Http, namespace: str, manifest: dict[str, Any]) -> Any:
    return admin.post(KILN.format(namespace) + PLURALS[manifest["kind"]], manifest)


@pytest.mark.parametrize("manifest", job_manifests.all_manifests(), ids=job_manifests.title)
def test_manifests_are_accepted_by_kubectl(
    kubectl: kube_servers.Kubectl, manifest: dict[str, Any]
) -> None:
    """With every field kept: `--validate=strict` refuses those that are unknown."""
    text = json.dumps(manifest)
    shown = kubectl("create", "--validate=strict", "-o", "json", "-f", "-", stdin=text)
    kept = json.loads(shown)["spec"]
    assert contains(kept, manifest["spec"])


def contains(whole: Any, part: Any) -> bool:
    """Whether all that `part` says is in `whole`, which has defaults too."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Job", {}, "template"),
        ("Job", {"template": {**TEMPLATE, "task": {"template": TASK}}}, "template"),
        ("Job", {"template": {**TEMPLATE, "retry": {}, "maxAttempts": 2}}, "template"),
        (
            "Job",
            {
                "template": {
                    **TEMPLATE,
                    "timeouts": {"pendingSeconds": 1},
                    "taskPendingTimeoutSeconds": 1,
                }
            },
            "template",
        ),
        ("Job", {"template": {**TEMPLATE, "parallelism": {}}}, "template.parallelism"),
        (
            "Job",
            {"template": {**TEMPLATE, "parallelism": {"withCount": 1, "withKeys": ["a"]}}},
            "template.parallelism",
        ),
        (
            "Job",
            {"template": {**TEMPLATE, "parallelism": {"withCount": 0}}},
            "template.parallelism.withCount",
        ),
        (
            "Job",
            {"template": {"taskTemplate": {**TASK, "call": {"function": "m:f"}}}},
            "template.taskTemplate",
        ),
        ("Job", {"template": TEMPLATE, "dependsOn": [{"kind": "Pod", "name": "a"}]}, "dependsOn"),
        ("Job", {"template": {**TEMPLATE, "maxAttempts": 51}}, "template.maxAttempts"),
        ("Job", {"template": TEMPLATE, "killTimestamp": "now"}, "killTimestamp"),
        (
            "JobConfig",
            {**CONFIG, "concurrency": {"policy": "Allow", "maxConcurrency": 2}},
            "concurrency.maxConcurrency",
        ),
        ("JobConfig", {**CONFIG, "concurrency": {}}, "concurrency.policy"),
        ("JobConfig", {"concurrency": {"policy": "Allow"}}, "template"),
        (
            "JobConfig",
            {**CONFIG, "schedule": {"cron": {"expression": "@daily", "expressions": ["@daily"]}}},
            "schedule.cron",
        ),
        (
            "JobConfig",
            {**CONFIG, "option": {"options": [{"type": "Text", "name": "a"}]}},
            "option.options[0].type",
        ),
        (
            "JobConfig",
            {**CONFIG, "option": {"options": [{"type": "Bool", "name": "a b"}]}},
            "option.options[0].name",
        ),
    ],
)
def test_invalid_jobs_are_rejected(
    admin: kube_servers.Http, namespace: str, kind: str, spec: Any, field: str
) -> None:
    refused = create(admin, namespace, body(kind, spec))
    assert refused.status == 422, refused.json
    at, found = f"spec.{field}", [cause["field"] for cause in refused.json["details"]["causes"]]
    assert any(one.startswith("spec") and (one in at or at in one) for one in found)


@pytest.mark.parametrize(
    ("kind", "spec", "longest"), [("Job", BEFORE, 63), ("JobConfig", CONFIG, 49)]
)
def test_job_names_leave_room_for_generated_names(
    admin: kube_servers.Http, namespace: str, kind: str, spec: Any, longest: int
) -> None:
    create(admin, namespace, body(kind, spec, "x" * longest)).ok()
    refused = create(admin, namespace, body(kind, spec, "x" * (longest + 1)))
    assert refused.status == 422
    assert f"must be no more than {longest} characters" in refused.message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"run": 1}, "run may only rise"),
        ({"configName": "a"}, "may only be cleared"),
        ({"type": "Scheduled"}, "cannot be changed: make another Job"),
        ({"substitutions": {"option.x": "2"}}, "cannot be changed: make another Job"),
        ({"dependsOn": [{"name": "a"}]}, "cannot be changed: make another Job"),
        ({"locks": [{"name": "a"}]}, "cannot be changed: make another Job"),
        ({"startPolicy": {"concurrencyPolicy": "Allow"}}, "cannot be changed: make another Job"),
        ({"template": {"maxAttempts": 3}}, "only parallelism.maxInFlight can be changed"),
        ({"template": {"maxAttempts": None}}, "only parallelism.maxInFlight can be changed"),
        ({"template": {"taskTemplate": {"command": ["false"]}}}, "only parallelism.maxInFlight"),
        ({"template": {"parallelism": None}}, "only parallelism.maxInFlight can be changed"),
        ({"template": {"parallelism": {"withCount": 3}}}, "only parallelism.maxInFlight"),
    ],
)
def test_job_template_cannot_change(
    admin: kube_servers.Http, namespace: str, change: Any, why: str
) -> None:
    create(admin, namespace, body("Job", BEFORE)).ok()
    path = KILN.format(namespace) + "jobs/x"
    refused = admin.patch(path, {"spec": change}, form=MERGE)
    assert refused.status == 422, refused.json
    assert why in refused.message
    assert admin.get(path).json["spec"]["template"] == BEFORE["template"] | {
        "taskTemplate": admin.get(path).json["spec"]["template"]["taskTemplate"]
    }


def test_mutable_job_fields_can_change(admin: kube_servers.Http, namespace: str) -> None:
    create(admin, namespace, body("Job", BEFORE)).ok()
    change = {
        "run": 3,
        "suspend": True,
        "priority": 9,
        "killTimestamp": "2031-01-02T03:04:05Z",
        "ttlSecondsAfterFinished": 1,
        "template": {"parallelism": {"maxInFlight": 7}},
    }
    changed = admin.patch(KILN.format(namespace) + "jobs/x", {"spec": change}, form=MERGE).ok()
    assert contains(changed["spec"], change)


def test_rules_stay_within_cost_limit_for_many_keys(
    admin: kube_servers.Http, namespace: str
) -> None:
    """A server gives the rules of an object a budget for each write."""
    keys = [f"{number:05}-{'k' * 24}" for number in range(8_000)]
    job = {"template": {**TEMPLATE, "parallelism": {"withKeys": keys}}}
    create(admin, namespace, body("Job", job)).ok()
    path = KILN.format(namespace) + "jobs/x"
    admin.patch(path, {"spec": {"suspend": True}}, form=MERGE).ok()
    fewer = {"template": {"parallelism": {"withKeys": keys[1:]}}}
    assert admin.patch(path, {"spec": fewer}, form=MERGE).status == 422


def test_job_gets_template_of_its_config_once(admin: kube_servers.Http, namespace: str) -> None:
    """What the manager does: the name of the JobConfig goes, what it says comes."""
    own = {"configName": "a", "template": {"taskTemplate": {"command": ["own"]}}}
    create(admin, namespace, body("Job", own)).ok()
    path = KILN.format(namespace) + "jobs/x"
    assert admin.patch(path, {"spec": {"configName": "b"}}, form=MERGE).status == 422
    copied = {
        "configName": None,
        "startPolicy": {"concurrencyPolicy": "Forbid"},
        "substitutions": {"jobconfig.name": "a"},
        "optionValues": {"x": 1},
        "locks": [{"name": "l"}],
        "template": {"taskTemplate": {"command": ["copied"]}, "maxAttempts": 2},
    }
    admin.patch(path, {"spec": copied}, form=MERGE).ok()
    for change in ({"configName": "a"}, {"template": {"maxAttempts": 3}}, {"locks": None}):
        assert admin.patch(path, {"spec": change}, form=MERGE).status == 422


def test_kubectl_explains_down_to_a_field(kubectl: kube_servers.Kubectl) -> None:
    shown = kubectl("explain", "kjob.spec.template")
    for field in ("taskTemplate", "parallelism", "hooks", "finalizer", "timeouts"):
        assert f"{field}\t<" in shown
    assert "JSONPath (RFC 9535)" in kubectl(
        "explain", "jobs.spec.template.parallelism.withResultOf.path", "--api-version", VERSION
    )
    assert "`spec.template.taskTemplate`" in kubectl(
        "explain", "kjob.spec.template.hooks.taskTemplate"
    )
    assert "IANA name" in kubectl("explain", "kjc.spec.schedule.cron.timezone")


def test_columns_show_indexes_and_times(admin: kube_servers.Http, namespace: str) -> None:
    create(admin, namespace, body("Job", BEFORE)).ok()
    path = KILN.format(namespace) + "jobs"
    status = {
        "phase": "Running",
        "indexes": {"total": 2, "succeeded": 1, "failed": 0, "running": 1},
        "reason": "Started",
    }
    admin.patch(f"{path}/x/status", {"status": status}, form=MERGE).ok()
    assert cells(table(admin, path), "x")[:5] == ["x", "Running", 1, 0, 2]


def test_columns_show_the_schedule(admin: kube_servers.Http, namespace: str) -> None:
    path = KILN.format(namespace) + "jobconfigs"
    for name, cron in (
        ("one", {"expression": "H 2 * * *", "timezone": "Europe/Zurich"}),
        ("two", {"expressions": ["@daily", "@hourly"]}),
    ):
        create(admin, namespace, body("JobConfig", {**CONFIG, "schedule": {"cron": cron}}, name))
    create(admin, namespace, body("JobConfig", CONFIG, "none")).ok()
    status = {
        "state": "ReadyEnabled",
        "active": 1,
        "queued": 0,
        "nextRuns": ["2031-01-02T03:04:05Z", "2031-01-03T03:04:05Z"],
    }
    admin.patch(f"{path}/one/status", {"status": status}, form=MERGE).ok()
    shown = {name: cells(table(admin, path), name) for name in ("one", "two", "none")}
    assert shown["one"][:6] == ["one", "ReadyEnabled", 1, 0, "H 2 * * *", "Europe/Zurich"]
    assert shown["one"][7] == "2031-01-02T03:04:05Z"
    assert shown["two"][4] == '["@daily","@hourly"]'
    assert shown["none"][4] is None


def test_jobs_are_selected_by_their_phase(admin: kube_servers.Http, namespace: str) -> None:
    path = KILN.format(namespace) + "jobs"
    for name in ("a", "b"):
        create(admin, namespace, body("Job", BEFORE, name)).ok()
    admin.patch(f"{path}/a/status", {"status": {"phase": "Failed"}}, form=MERGE).ok()
    found = admin.get(f"{path}?fieldSelector=status.phase%3DFailed").json["items"]
    assert [one["metadata"]["name"] for one in found] == ["a"]
