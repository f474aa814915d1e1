"""Jobs and JobConfigs on the real Kubernetes, with the installed rights: indexes, ticks,
concurrency.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import kube_manager, waiting

pytestmark = pytest.mark.timeout(180)

FINAL = {"Succeeded", "Failed", "Killed", "AdmissionError"}
GROUP = "/apis/kilnwork.dev/v1alpha1/namespaces"


class World:
    """A namespace with a worker, and helpers for Jobs there."""

    def __init__(self, manager: kube_manager.Manager, namespace: str) -> None:
        self.manager = manager
        self.namespace = namespace

    def apply(self, kind: str, name: str, **spec: Any) -> None:
        """Create or change a Job or JobConfig."""
        made = {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self.manager.kube.apply(made, namespace=self.namespace)

    def patch(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        path = f"{GROUP}/{self.namespace}/{plural}/{name}"
        self.manager.kube.http.patch(path, {"spec": spec}).ok()

    def get(self, plural: str, name: str = "") -> Any:
        path = f"{GROUP}/{self.namespace}/{plural}/{name}".rstrip("/")
        return json.loads(self.manager.kube.http.get(path).body)

    def status(self, name: str, plural: str = "jobs") -> dict[str, Any]:
        return dict(self.get(plural, name).get("status") or {})

    def wait(
        self, name: str, what: Callable[[dict[str, Any]], bool], *, plural: str = "jobs"
    ) -> dict[str, Any]:
        """Wait until `holds` is true of a status; return the status."""
        try:
            waiting.wait_until(
                lambda: what(self.status(name, plural)), what=f"{plural} {name}", timeout_s=60
            )
        except AssertionError as error:
            details = f"{error}\n{self.status(name, plural)}\n{self.manager.log()[-3000:]}"
            raise AssertionError(details) from error
        return self.status(name, plural)

    def phase(self, name: str, *wanted: str) -> dict[str, Any]:
        found = self.wait(name, lambda s: s.get("phase") in (*wanted, *FINAL))
        assert found["phase"] in wanted, found
        return found


@pytest.fixture(scope="module")
def world(manager: kube_manager.Manager, team: str) -> World:
    return World(manager, team)


def command(*argv: str, **more: Any) -> dict[str, Any]:
    return {"taskTemplate": {"command": list(argv)}, **more}


def test_indexes_and_finalizer(world: World) -> None:
    template = command(
        "sh", "-c", "echo $((${task.index_num} * 2)) > $KILN_OUTPUT",
        parallelism={"withCount": 5},
        finalizer={"taskTemplate": {"command": ["sh", "-c", "cp $KILN_INPUT $KILN_OUTPUT"]}},
    )  # fmt: skip
    world.apply("Job", "sum", template=template)
    found = world.phase("sum", "Succeeded")
    assert found["result"]["value"] == {"results": [0, 2, 4, 6, 8]}
    assert found["indexes"]["succeeded"] == 5
    made = world.get("jobs", "sum")
    assert len(json.dumps(made)) < 256 * 1024


def test_job_of_a_config_is_expanded_and_owned(world: World) -> None:
    options = {"options": [{"type": "String", "name": "who", "string": {"default": "you"}}]}
    world.apply(
        "JobConfig", "greet",
        concurrency={"policy": "Enqueue"},
        option=options,
        template={"spec": command("sh", "-c", "echo '\"${option.who}\"' > $KILN_OUTPUT")},
    )  # fmt: skip
    world.apply("Job", "greet-ada", configName="greet", optionValues={"who": "Ada"})
    assert world.phase("greet-ada", "Succeeded")["result"]["value"] == "Ada"
    made = world.get("jobs", "greet-ada")
    assert made["metadata"]["ownerReferences"][0]["name"] == "greet"
    assert "configName" not in made["spec"]
    world.apply("Job", "greet-typo", configName="greet", optionValues={"wo": "Ada"})
    assert "wo" in world.phase("greet-typo", "AdmissionError")["message"]


def test_jobs_of_a_config_start_in_order_of_creation(world: World) -> None:
    world.apply(
        "JobConfig", "line",
        concurrency={"policy": "Enqueue", "maxQueued": 100},
        template={"spec": command("sh", "-c", "date +%s%N > $KILN_OUTPUT")},
    )  # fmt: skip
    http, path = world.manager.kube.http, f"{GROUP}/{world.namespace}/jobs"
    names = [f"line-{number:02}" for number in range(40)]
    for name in names:  # faster than they are processed, so they could overtake each other
        made = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "Job", "metadata": {"name": name}}
        http.post(path, {**made, "spec": {"configName": "line"}}).ok()
    ran = {name: world.phase(name, "Succeeded")["result"]["value"] for name in names}
    order = sorted(names, key=lambda name: int(ran[name]))
    assert order == names


def test_forbid_and_replace_policies_are_applied(world: World) -> None:
    world.apply(
        "JobConfig", "alone",
        concurrency={"policy": "Forbid"},
        template={"spec": command("sleep", "300", timeouts={"killGraceSeconds": 1})},
    )  # fmt: skip
    world.apply("Job", "alone-1", configName="alone")
    world.phase("alone-1", "Running")
    world.apply("Job", "alone-2", configName="alone")
    assert world.phase("alone-2", "AdmissionError")["reason"] == "Forbidden"
    world.patch("jobs", "alone-1", {"killTimestamp": "2020-01-01T00:00:00Z"})
    found = world.phase("alone-1", "Killed")
    assert {c["type"]: c["status"] for c in found["conditions"]}["Stopped"] == "True"
    world.wait("alone", lambda s: not s.get("active"), plural="jobconfigs")


def test_schedule_makes_one_job_for_each_tick(world: World) -> None:
    world.apply(
        "JobConfig", "ticks",
        concurrency={"policy": "Allow"},
        # All: a tick that a slow machine notices after the next one is not missed
        schedule={
            "cron": {"expression": "*/2 * * * * * *"},
            "missedRuns": {"policy": "All", "maxRuns": 20},
        },
        template={"spec": command("true")},
    )  # fmt: skip

    def ticks() -> list[int]:
        names = [one["metadata"]["name"] for one in world.get("jobs")["items"]]
        return sorted(int(n.removeprefix("ticks-")) for n in names if n.startswith("ticks-"))

    waiting.wait_until(lambda: len(ticks()) >= 3, what="three ticks", timeout_s=30)
    world.patch("jobconfigs", "ticks", {"schedule": {"disabled": True}})
    world.wait("ticks", lambda s: s.get("state") == "ReadyDisabled", plural="jobconfigs")
    time.sleep(2.2)  # a tick that must not come
    found = ticks()
    assert found == list(range(found[0], found[-1] + 1, 2))
    for tick in found:
        world.phase(f"ticks-{tick}", "Succeeded")
    path = f"{GROUP}/{world.namespace}/jobconfigs/ticks"
    world.manager.kube.http.delete(path).ok()
    waiting.wait_until(lambda: not ticks(), what="its Jobs are collected", timeout_s=60)


def test_immutable_fields_are_refused(world: World) -> None:
    world.apply("Job", "fixed", template=command("true"), suspend=True)
    path = f"{GROUP}/{world.namespace}/jobs/fixed"
    changed = {"spec": {"template": command("false")}}
    response = world.manager.kube.http.patch(path, changed)
    assert response.status == 422
    world.patch("jobs", "fixed", {"suspend": False})
    world.phase("fixed", "Succeeded")


def test_apply_refuses_jobs_that_the_api_server_accepts(world: World) -> None:
    def config(name: str, expression: str, word: str = "true") -> dict[str, Any]:
        return {
            "apiVersion": "kilnwork.dev/v1alpha1",
            "kind": "JobConfig",
            "metadata": {"name": name},
            "spec": {
                "schedule": {"cron": {"expression": expression}},
                "concurrency": {"policy": "Forbid"},
                "template": {"spec": command(word)},
            },
        }

    def apply(*objects: dict[str, Any], validate: str = "true") -> tuple[int, str, str]:
        done = world.manager.kube.kiln(
            "apply", "-n", world.namespace, "-f", "-", f"--validate={validate}",
            stdin="\n---\n".join(map(json.dumps, objects)), check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    sound = config("sound", "0 0 1 1 *")
    wrong, unknown = config("wrong", "61 2 * * *"), config("unknown", "0 0 1 1 *", "${job.nmae}")
    code, out, err = apply(sound, wrong, unknown)
    assert (code, out) == (1, "")
    assert 'JobConfig.kilnwork.dev "wrong" is invalid: spec.schedule.cron.expression: ' in err
    assert 'JobConfig.kilnwork.dev "unknown" is invalid: spec.template.spec.taskTemplate' in err
    there = [one["metadata"]["name"] for one in world.get("jobconfigs")["items"]]
    assert not {"sound", "wrong", "unknown"} & set(there)

    assert apply(wrong, validate="false")[:2] == (0, "jobconfig.kilnwork.dev/wrong created\n")
    found = world.wait("wrong", lambda s: bool(s.get("conditions")), plural="jobconfigs")
    assert {c["type"]: c["status"] for c in found["conditions"]}["Valid"] == "False"
    wrong["metadata"]["labels"] = {"what": "else"}
    assert apply(wrong)[:2] == (0, "jobconfig.kilnwork.dev/wrong configured\n")
    assert apply(config("wrong", "62 2 * * *"))[:2] == (1, "")
    assert apply(config("wrong", "0 0 1 1 *"))[:2] == (
        0,
        "jobconfig.kilnwork.dev/wrong configured\n",
    )


def test_manager_has_the_rights_that_it_needs(world: World) -> None:
    assert world.manager.refusals() == []


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture
def barred(world: World) -> Iterator[str]:
    """Return the name of a JobConfig whose Jobs a policy refuses."""
    http, name = world.manager.kube.http, "barred"
    rule = {
        "apiGroups": ["kilnwork.dev"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["jobs"],
    }
    refused = {
        "expression": f"!object.metadata.name.startsWith('{name}-')",
        "message": "no Jobs of this sort today",
    }
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [refused]}
    http.post(POLICIES, {**group, "kind": "ValidatingAdmissionPolicy", "spec": spec}).ok()
    spec = {"policyName": name, "validationActions": ["Deny"]}
    http.post(BINDINGS, {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec}).ok()
    probe = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "Job",
        "metadata": {"name": f"{name}-probe"},
        "spec": {"template": command("true")},
    }
    jobs = f"{GROUP}/{world.namespace}/jobs"
    waiting.wait_until(
        lambda: http.post(jobs, probe, dryRun="All").status == 422, what="the policy holds"
    )
    yield name
    http.delete(f"{BINDINGS}/{name}")
    http.delete(f"{POLICIES}/{name}")


def test_job_refused_by_a_policy_is_reported_and_created_later(world: World, barred: str) -> None:
    world.apply(
        "JobConfig", barred,
        concurrency={"policy": "Forbid"},
        schedule={"cron": {"expression": "*/2 * * * * * *"}},
        template={"spec": command("true")},
    )  # fmt: skip

    def refused(status: dict[str, Any]) -> bool:
        found = {c["type"]: c for c in status.get("conditions", ())}.get("Scheduled", {})
        return (
            found.get("reason") == "JobNotMade" and "no Jobs of this sort today" in found["message"]
        )

    world.wait(barred, refused, plural="jobconfigs")
    world.manager.kube.http.delete(f"{BINDINGS}/{barred}").ok()

    def made() -> bool:
        names = [one["metadata"]["name"] for one in world.get("jobs")["items"]]
        return any(name.startswith(f"{barred}-") for name in names)

    waiting.wait_until(made, what="a Job is made once it may be", timeout_s=60)
    world.patch("jobconfigs", barred, {"schedule": {"disabled": True}})
    found = world.wait(barred, lambda s: not refused(s), plural="jobconfigs")
    reasons = set(found.get("missed", {}).get("reasons", {}))
    assert reasons <= {"Forbidden", "Disabled", "MissedRunsPolicy"}
