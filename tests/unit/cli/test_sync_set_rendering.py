"""`kiln render`: objects of a SyncSet, compared with golden files and the rules of Volcano.

The rules are those of its webhook `jobs/validate` (volcano.sh/volcano pkg/webhooks/admission/jobs);
tests/integration/test_volcano_schema.py checks its schema.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kilnwork.api import node_fit, volcano_rendering
from kilnwork.cli import main

GOLDEN = Path(__file__).parents[2] / "support" / "volcano"
SET = GOLDEN / "risk.yaml"


def render(*arguments: str, stdin: str | None = None) -> tuple[int, str]:
    found = CliRunner().invoke(main.kiln, ["render", *arguments], input=stdin)
    return found.exit_code, found.output or str(found.exception)


@pytest.mark.parametrize("backend", ["local", "pods", "volcano"])
def test_rendering_is_that_of_the_golden_file(backend: str) -> None:
    code, text = render(str(SET), "--backend", backend)
    assert code == 0
    assert text == (GOLDEN / f"{backend}.yaml").read_text(), (
        f"kiln render {SET} --backend {backend} > tests/support/volcano/{backend}.yaml"
    )


def job() -> dict[str, Any]:
    found = list(yaml.safe_load_all((GOLDEN / "volcano.yaml").read_text()))
    [made] = [one for one in found if one["apiVersion"] == volcano_rendering.API_VERSION]
    return dict(made)


def test_volcano_job_keeps_the_rules_of_its_webhook() -> None:
    spec = job()["spec"]
    tasks = spec["tasks"]
    assert tasks
    assert max(Counter(task["name"] for task in tasks).values()) == 1
    assert all(0 < task["minAvailable"] <= task["replicas"] for task in tasks)
    assert 0 < spec["minAvailable"] <= sum(task["replicas"] for task in tasks)
    assert spec["minAvailable"] == sum(task["minAvailable"] for task in tasks)
    assert spec["plugins"].keys() <= {"env", "svc", "ssh"}
    assert spec["maxRetry"] > 0
    for task in tasks:
        pod = f"{job()['metadata']['name']}-{task['name']}-{task['replicas'] - 1}"
        assert len(pod) <= 63
        seen: set[str] = set()
        for policy in task["policies"]:
            assert "exitCode" not in policy
            assert policy["action"] in {"AbortJob", "RestartPod"}
            assert set(policy["events"]) <= {"PodFailed", "PodEvicted", "PodPending", "Unknown"}
            assert not seen & set(policy["events"])
            seen |= set(policy["events"])


def test_volcano_gang_counts_because_every_pod_has_requests() -> None:
    """Pods without requests are `best effort`: Volcano counts them as ready, so the gang has no
    effect.
    """
    for task in job()["spec"]["tasks"]:
        asked = node_fit.requests(task["template"]["spec"])
        assert asked["cpu"] > 0
        assert asked["memory"] > 0


def test_one_object_gives_groups_flow_and_data_as_a_gang() -> None:
    """Statement 1: workers of all groups are in one Job, with their data."""
    spec = job()["spec"]
    assert {task["name"]: task["replicas"] for task in spec["tasks"]} == {"worker": 50, "solver": 1}
    for task in spec["tasks"]:
        pod = task["template"]["spec"]
        assert pod["schedulerName"] == spec["schedulerName"] == "volcano"
        [container] = pod["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        mounts = {one["mountPath"]: one["readOnly"] for one in container["volumeMounts"]}
        assert mounts[env["KILN_DATA"] or ""]
        assert env["KILN_CLUSTER"] == f"eod-risk-g1-{task['name']}"


def test_long_names_are_refused_with_the_name_of_the_pod() -> None:
    role = volcano_rendering.Role(name="w" * 40, replicas=1, min=1, template={})
    with pytest.raises(volcano_rendering.Unrenderable, match="w-999 cannot be the name of a Pod"):
        volcano_rendering.render("s" * 20, [role], namespace="x")


def test_bad_sets_are_refused_with_file_and_field() -> None:
    text = SET.read_text().replace("min: 40", "min: 51")
    code, output = render("-", stdin=text)
    assert code != 0
    assert "standard input:1: SyncSet eod-risk would be refused:" in output
    assert "spec.resources.groups[0].min is 51, more than replicas, 50" in output


def test_files_without_a_set_are_refused() -> None:
    code, output = render("-", stdin="kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n")
    assert code != 0
    assert "there is no SyncSet" in output


def test_controller_and_outputs_are_part_of_the_gang() -> None:
    """A controller is next to the workers of the Job, and a directory for the output of tasks."""
    found = yaml.safe_load(SET.read_text())
    spec = found["spec"]
    spec["resources"]["controller"] = {"template": spec["resources"]["groups"][0]["template"]}
    spec["data"]["outputs"] = [{"name": "prices", "step": next(iter(spec["flow"]["do"][0]))}]
    code, text = render("-", "--backend", "volcano", stdin=yaml.safe_dump(found))
    assert code == 0, text
    made = [
        one
        for one in yaml.safe_load_all(text)
        if one["apiVersion"] == volcano_rendering.API_VERSION
    ]
    tasks = {task["name"]: task for task in made[0]["spec"]["tasks"]}
    assert tasks["controller"]["replicas"] == tasks["controller"]["minAvailable"] == 1
    [container] = tasks["controller"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["KILN_SPAWN_CLUSTER"] == "eod-risk-g1-worker"
    mounts = {one["mountPath"]: one["readOnly"] for one in container["volumeMounts"]}
    assert mounts[env["KILN_OUTPUTS"] or ""] is False
