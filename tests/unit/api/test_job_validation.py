"""Rules for Jobs and JobConfigs: what is refused, with its path, and what is not."""

from typing import Any

import pytest

from kilnwork.api import admission, crd_jobs

TASK = {"command": ["true"]}
TEMPLATE = {"taskTemplate": TASK}
POD = {"spec": {"containers": [{"name": "main", "image": "x", "args": ["${task.attempt}"]}]}}


def of_job(spec: Any, **metadata: Any) -> list[tuple[str, str]]:
    return admission.validate_job({"metadata": {"name": "report", **metadata}, "spec": spec})


def of_template(**template: Any) -> list[tuple[str, str]]:
    return of_job({"template": {**TEMPLATE, **template}})


def of_config(name: str = "report", **spec: Any) -> list[tuple[str, str]]:
    usual = {"template": {"spec": TEMPLATE}, "concurrency": {"policy": "Forbid"}}
    return admission.validate_job_config({"metadata": {"name": name}, "spec": {**usual, **spec}})


def named(*keys: str) -> dict[str, Any]:
    return {"withKeys": [*keys]}


BAD_TEMPLATES = [
    ({"task": {"template": TASK}}, "task", crd_jobs.TASK_RULE),
    ({"retry": {}, "maxAttempts": 2}, "maxAttempts", crd_jobs.RETRY_RULE),
    ({"retry": {}, "retryDelaySeconds": 0}, "retryDelaySeconds", crd_jobs.RETRY_RULE),
    (
        {"timeouts": {"pendingSeconds": 0}, "taskPendingTimeoutSeconds": 0},
        "taskPendingTimeoutSeconds",
        crd_jobs.PENDING_RULE,
    ),
    ({"taskTemplate": {**TASK, "call": {"function": "m:f"}}}, "taskTemplate.call", "give either"),
    ({"taskTemplate": {**TASK, "clusterName": "A"}}, "taskTemplate.clusterName", "RFC 1123"),
    ({"taskTemplate": {"command": ["a\0"]}}, "taskTemplate.command[0]", "NUL"),
    ({"taskTemplate": {"pod": {"spec": {}}}}, "taskTemplate.pod.spec.containers", "at least one"),
    (
        {"finalizer": {"taskTemplate": {"workflow": {}}}},
        "finalizer.taskTemplate.workflow",
        "one of spec and manifest",
    ),
    (
        {"finalizer": {"taskTemplate": {**TASK, "inputs": [{"name": "results", "task": "x"}]}}},
        "finalizer.taskTemplate.inputs[0].name",
        "rename it",
    ),
    (
        {"hooks": [{"on": ["Failed", "Killed", "Failed"], "taskTemplate": TASK}]},
        "hooks[0].on[2]",
        "is there twice",
    ),
    (
        {"hooks": [{"on": ["Failed"], "taskTemplate": {"http": {}}}]},
        "hooks[0].taskTemplate.http",
        "missing required field `request`",
    ),
    (
        {"hooks": [{"on": ["Failed"], "taskTemplate": {"comand": ["true"]}}]},
        "hooks[0].taskTemplate",
        "unknown field `comand`",
    ),
]


@pytest.mark.parametrize(("template", "path", "why"), BAD_TEMPLATES)
def test_invalid_template_is_refused_with_its_path(template: Any, path: str, why: str) -> None:
    ((field, problem),) = of_template(**template)
    assert field == f"spec.template.{path}"
    assert why in problem
    ((of_config_field, same),) = of_config(template={"spec": {**TEMPLATE, **template}})
    assert of_config_field == f"spec.template.spec.{path}"
    assert same == problem


BAD_INDEX_SETS = [
    ({}, "", crd_jobs.INDEX_RULE),
    ({"withCount": 1, **named("a")}, "", crd_jobs.INDEX_RULE),
    (named(), ".withKeys", "at least one value"),
    (named("a", "b", "a"), ".withKeys[2]", 'is there twice: "a"'),
    (
        named("a", "${option.shop}"),
        ".withKeys[1]",
        "has the variable ${option.shop}, and is taken as",
    ),
    (
        {"withMatrix": {"city": ["${job.name}"]}},
        ".withMatrix.city[0]",
        "has the variable ${job.name}",
    ),
    ({"withMatrix": {}}, ".withMatrix", "at least one key"),
    ({"withMatrix": {"City": ["oslo"]}}, ".withMatrix.City", "only a-z, 0-9, _ and -"),
    ({"withMatrix": {"city": []}}, ".withMatrix.city", "at least one value"),
    ({"withMatrix": {"city": ["a", "a"]}}, ".withMatrix.city[1]", "is there twice"),
    (
        {"withMatrix": {key: [*map(str, range(101))] for key in "abc"}},
        ".withMatrix",
        "at most 1000000 combinations, not 1030301",
    ),
    ({"withResultOf": {"task": "A"}}, ".withResultOf.task", "RFC 1123"),
    ({"withResultOf": {"jobConfig": "A"}}, ".withResultOf.jobConfig", "RFC 1123"),
    ({"withResultOf": {"path": "$.x"}}, ".withResultOf", "give one of task, job and jobConfig"),
    ({"withResultOf": {"task": "a", "job": "a"}}, ".withResultOf", "give one of task, job"),
    ({"withResultOf": {"task": "a", "path": "x["}}, ".withResultOf.path", "is no JSONPath"),
]


@pytest.mark.parametrize(("parallelism", "path", "why"), BAD_INDEX_SETS)
def test_invalid_index_set_is_refused_with_its_path(parallelism: Any, path: str, why: str) -> None:
    ((field, problem),) = of_template(parallelism=parallelism)
    assert field == f"spec.template.parallelism{path}"
    assert why in problem


@pytest.mark.parametrize(
    ("strategy", "path", "why"),
    [
        ("Some", "", 'not "Some"'),
        (None, "", "not null"),
        ([], "", "not a list of 0"),
        ({}, "", "not an object with 0 members"),
        ({"minSuccessful": 1, "maxFailed": 1}, "", "not an object with 2 members"),
        ({"minimum": 1}, "", "{minSuccessful: N} or {maxFailed: N}"),
        ({"minSuccessful": 0}, ".minSuccessful", "from 1 to 4"),
        ({"minSuccessful": 5}, ".minSuccessful", "as many indexes there are, not 5"),
        ({"minSuccessful": True}, ".minSuccessful", "not true"),
        ({"minSuccessful": "50%"}, ".minSuccessful", "whole number"),
        ({"maxFailed": -1}, ".maxFailed", "from 0 to"),
        ({"maxFailed": 1.5}, ".maxFailed", "not 1.5"),
        ({"maxFailed": "101%"}, ".maxFailed", 'from 0% to 100%, not "101%"'),
        ({"maxFailed": "1"}, ".maxFailed", "percentage"),
    ],
)
def test_invalid_completion_strategy_is_refused(strategy: Any, path: str, why: str) -> None:
    parallelism = {"withCount": 4, "completionStrategy": strategy}
    ((field, problem),) = of_template(parallelism=parallelism)
    assert field == f"spec.template.parallelism.completionStrategy{path}"
    assert why in problem


@pytest.mark.parametrize(
    "strategy",
    ["AllSuccessful", "AnySuccessful", {"minSuccessful": 4}, {"maxFailed": 0}, {"maxFailed": "9%"}],
)
def test_every_completion_strategy_is_accepted(strategy: Any) -> None:
    parallelism = {"withCount": 4, "completionStrategy": strategy}
    assert of_template(parallelism=parallelism) == []


def test_min_successful_is_unchecked_while_the_total_is_unknown() -> None:
    source = {"withResultOf": {"task": "a"}, "completionStrategy": {"minSuccessful": 9}}
    assert of_template(parallelism=source) == []


BAD_JOBS = [
    ({}, "spec.template", crd_jobs.TEMPLATE_RULE),
    ({"template": {}}, "spec.template.taskTemplate", "is needed"),
    ({"configName": "A"}, "spec.configName", "RFC 1123"),
    ({"template": TEMPLATE, "killTimestamp": "now"}, "spec.killTimestamp", "RFC 3339"),
    (
        {"template": TEMPLATE, "startPolicy": {"startAfter": "2026-01-02"}},
        "spec.startPolicy.startAfter",
        "RFC 3339",
    ),
    (
        {"template": TEMPLATE, "dependsOn": [{"name": "a"}, {"name": "a"}]},
        "spec.dependsOn[1].name",
        "is there twice",
    ),
    (
        {"template": TEMPLATE, "dependsOn": [{"name": "report"}]},
        "spec.dependsOn[0].name",
        "is this Job itself",
    ),
    (
        {"template": TEMPLATE, "locks": [{"name": "a"}, {"name": "a", "mode": "Shared"}]},
        "spec.locks[1].name",
        "is there twice",
    ),
    ({"template": TEMPLATE, "locks": [{"name": "_"}]}, "spec.locks[0].name", "RFC 1123"),
    ({"configName": "a", "optionValues": 1}, "spec.optionValues", "must be an object"),
    ({"configName": "a", "optionValues": "a: [b"}, "spec.optionValues", "neither JSON nor YAML"),
    ({"configName": "a", "optionValues": "- a"}, "spec.optionValues", "not a list of 1"),
    ({"configName": "a", "optionValues": "{}\n---\n{}"}, "spec.optionValues", "it has 2"),
    ({"configName": "a", "substitutions": {"x": "1"}}, "spec.substitutions.x", "whole name"),
    (
        {"configName": "a", "substitutions": {"option.${x}": "1"}},
        "spec.substitutions.option.${x}",
        "whole name",
    ),
]


@pytest.mark.parametrize(("spec", "path", "why"), BAD_JOBS)
def test_invalid_job_is_refused_with_its_path(spec: Any, path: str, why: str) -> None:
    ((field, problem),) = of_job(spec)
    assert field == path
    assert why in problem


@pytest.mark.parametrize(
    "spec",
    [
        {"template": TEMPLATE},
        {"configName": "a"},
        {"configName": "a", "optionValues": {"user": "Ada"}},
        {"configName": "a", "optionValues": "user: Ada"},
        {"configName": "a", "optionValues": ""},
        {"template": TEMPLATE, "dependsOn": [{"name": "report", "kind": "Task"}]},
        {"template": {"task": {"template": TASK}}},
    ],
)
def test_valid_job_is_accepted(spec: Any) -> None:
    assert of_job(spec) == []


def test_names_leave_room_for_derived_names() -> None:
    assert of_job({"configName": "a"}, name="x" * 63) == []
    ((field, problem),) = of_job({"configName": "a"}, name="x" * 64)
    assert (field, problem) == ("metadata.name", "must be no more than 63 characters, not 64")
    assert of_config("x" * 49) == []
    ((field, problem),) = of_config("x" * 50)
    assert (field, problem) == ("metadata.name", "must be no more than 49 characters, not 50")


def schedule(**more: Any) -> dict[str, Any]:
    return {"schedule": {"cron": {"expression": "H 2 * * *"}, **more}}


BAD_CONFIGS = [
    (
        {"concurrency": {"policy": "Allow", "maxConcurrency": 2}},
        "concurrency.maxConcurrency",
        crd_jobs.ALLOW_RULE,
    ),
    ({"schedule": {}}, "schedule.cron", "is needed"),
    (schedule(cron={}), "schedule.cron", crd_jobs.CRON_RULE),
    (
        schedule(cron={"expression": "@daily", "expressions": ["@daily"]}),
        "schedule.cron",
        crd_jobs.CRON_RULE,
    ),
    (schedule(cron={"expression": "61 * * * *"}), "schedule.cron.expression", "61"),
    (
        schedule(cron={"expressions": ["@daily", "0 0 31 2 *"]}),
        "schedule.cron.expressions[1]",
        "never comes",
    ),
    (
        schedule(cron={"expression": "@daily", "timezone": "Mars/Crater"}),
        "schedule.cron.timezone",
        "is no time zone",
    ),
    (schedule(lastUpdated="x"), "schedule.lastUpdated", "RFC 3339"),
    (
        schedule(constraints={"notBefore": "2026-01-01"}),
        "schedule.constraints.notBefore",
        "RFC 3339",
    ),
    (
        schedule(
            constraints={"notBefore": "2026-01-02T00:00:00Z", "notAfter": "2026-01-01T23:00:00Z"}
        ),
        "schedule.constraints.notAfter",
        "is before notBefore",
    ),
    (
        {"option": {"options": [{"type": "Bool", "name": "a"}, {"type": "String", "name": "a"}]}},
        "option.options[1].name",
        "rename one",
    ),
    ({"locks": [{"name": "a"}, {"name": "a"}]}, "locks[1].name", "is there twice"),
    (
        {"template": {"spec": TEMPLATE, "metadata": {"labels": {"a b": "c"}}}},
        "template.metadata.labels.a b",
        "name part must consist",
    ),
    (
        {"template": {"spec": TEMPLATE, "metadata": {"labels": {"a": "b c"}}}},
        "template.metadata.labels.a",
        "valid label",
    ),
    (
        {"template": {"spec": TEMPLATE, "metadata": {"annotations": {"/a": "b c"}}}},
        "template.metadata.annotations./a",
        "non-empty",
    ),
]


@pytest.mark.parametrize(("spec", "path", "why"), BAD_CONFIGS)
def test_invalid_job_config_is_refused_with_its_path(spec: Any, path: str, why: str) -> None:
    ((field, problem),) = of_config(**spec)
    assert field == f"spec.{path}"
    assert why in problem


# Variables


@pytest.mark.parametrize(
    "text",
    [
        "${job.name} ${job.uid} ${job.namespace} ${job.type} ${job.max_attempts}",
        "${task.name} ${task.namespace} ${task.index_num} ${task.cluster_name}",
        "${HOME} $${option.x} $$",
        "${option.given} ${option.substituted}",
    ],
)
def test_job_variables_are_accepted_in_commands(text: str) -> None:
    spec = {
        "template": {"taskTemplate": {"command": [text], "env": [{"name": "X", "value": text}]}},
        "optionValues": {"given": 1},
        "substitutions": {"option.substituted": "1"},
    }
    assert of_job(spec) == []


@pytest.mark.parametrize(
    ("task", "path", "why"),
    [
        ({"command": ["${job.nam}"]}, "command[0]", "did you mean ${job.name}?"),
        ({"args": ["", "${option.x}"]}, "args[1]", "which is no variable"),
        ({"env": [{"name": "X", "value": "${job.phase}"}]}, "env[0].value", "is no variable"),
        ({"image": "${task.index_key}"}, "image", "is no variable"),
        ({"command": ["${jobconfig.name}"]}, "command[0]", "is no variable"),
        ({"command": ["${task.attempt}"]}, "command[0]", "variable KILN_ATTEMPT has it"),
        ({"command": ["${task.retry_index}"]}, "command[0]", "KILN_ATTEMPT is greater by one"),
        (
            {"call": {"function": "m:f", "args": [{"a": "${task.attempt}"}]}},
            "call.args[0].a",
            "kiln.context().attempt has it",
        ),
        (
            {"call": {"function": "m:f", "kwargs": {"a": "${option.x}"}}},
            "call.kwargs.a",
            "is no variable",
        ),
        (
            {"pod": {"spec": {"containers": [{"name": "a", "args": ["${option.x}"]}]}}},
            "pod.spec.containers[0].args[0]",
            "is no variable",
        ),
        (
            {"external": {"executor": "x", "payload": ["${option.x}"]}},
            "external.payload[0]",
            "is no variable",
        ),
        (
            {"http": {"request": {"method": "GET", "url": "http://x/${option.x}"}}},
            "http.request.url",
            "is no variable",
        ),
        (
            {"workflow": {"spec": {"entrypoint": "${option.x}"}}},
            "workflow.spec.entrypoint",
            "is no variable",
        ),
    ],
)
def test_unknown_variables_are_refused_with_a_remedy(task: Any, path: str, why: str) -> None:
    ((field, problem),) = of_template(taskTemplate=task)
    assert field == f"spec.template.taskTemplate.{path}"
    assert why in problem


@pytest.mark.parametrize(
    ("parallelism", "known", "unknown"),
    [
        ({"withCount": 2}, "index_num", "index_key"),
        (named("a"), "index_key", "index_item"),
        ({"withMatrix": {"city": ["a"]}}, "index_matrix.city", "index_matrix.floor"),
        ({"withResultOf": {"task": "a"}}, "index_item", "index_key"),
    ],
)
def test_variables_of_an_index_are_those_of_its_index_set(
    parallelism: Any, known: str, unknown: str
) -> None:
    def problems(name: str) -> list[str]:
        task = {"external": {"executor": "x", "payload": f"${{task.{name}}}"}}
        return [why for _, why in of_template(taskTemplate=task, parallelism=parallelism)]

    assert problems(known) == []
    assert len(problems(unknown)) == 1


def test_attempt_variables_are_accepted_in_pods() -> None:
    assert of_template(taskTemplate={"pod": POD}) == []


def test_phase_is_only_for_hooks_and_results_only_for_the_finalizer() -> None:
    phase, results = "${job.phase}", "${task.inputs.results}"

    def external(payload: str) -> dict[str, Any]:
        return {"external": {"executor": "x", "payload": payload}}

    def hook(payload: str) -> dict[str, Any]:
        return {"hooks": [{"on": ["Failed"], "taskTemplate": external(payload)}]}

    def finalizer(payload: str) -> dict[str, Any]:
        return {"finalizer": {"taskTemplate": external(payload)}}

    assert of_template(**hook(phase)) == []
    assert of_template(**finalizer(results)) == []
    assert len(of_template(**hook(results))) == 1
    assert len(of_template(**finalizer(phase))) == 1
    assert len(of_template(**hook("${task.index_num}"))) == 1


def test_job_config_accepts_its_variables_and_options() -> None:
    options = {"options": [{"type": "String", "name": "user-name"}]}

    def problems(text: str) -> list[str]:
        spec = {"taskTemplate": {"command": [text]}}
        found = of_config(template={"spec": spec}, option=options)
        return [why for _, why in found]

    assert problems("${option.user-name} ${jobconfig.name} ${job.name}") == []
    (unknown,) = problems("${option.username}")
    assert "did you mean ${option.user-name}?" in unknown


def test_job_of_a_job_config_accepts_its_variables() -> None:
    spec = {"template": {"taskTemplate": {"command": ["${jobconfig.name}"]}}}
    owner = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "JobConfig", "name": "a", "uid": "u"}
    assert of_job(spec, ownerReferences=[owner]) == []


def test_template_of_a_job_with_config_name_is_not_checked() -> None:
    spec = {"configName": "a", "template": {"taskTemplate": {"command": ["${option.x}"]}}}
    assert of_job(spec) == []
    body = {"metadata": {"name": "a"}, "spec": spec}
    (warning,) = admission.warn_of_job(body, None)
    assert warning == "spec.template: has no effect: that of JobConfig a takes its place"
    assert list(admission.warn_of_job(body, body)) == []


# Updates

BEFORE: dict[str, Any] = {
    "template": {**TEMPLATE, "parallelism": {"withCount": 2, "maxInFlight": 1}, "maxAttempts": 2},
    "run": 2,
    "optionValues": {"a": 1},
    "substitutions": {"option.x": "1"},
}


def changed(old: Any, **new: Any) -> list[tuple[str, str]]:
    metadata = {"name": "report"}
    return admission.validate_job_update(
        {"metadata": metadata, "spec": old}, {"metadata": metadata, "spec": {**old, **new}}
    )


def template(**more: Any) -> dict[str, Any]:
    return {**BEFORE["template"], **more}


@pytest.mark.parametrize(
    ("new", "path", "why"),
    [
        ({"run": 1}, "spec.run", "may only rise, it was 2"),
        ({"configName": "a"}, "spec.configName", "may only be cleared"),
        ({"type": "Scheduled"}, "spec.type", crd_jobs.IMMUTABLE),
        ({"optionValues": {"a": 2}}, "spec.optionValues", crd_jobs.IMMUTABLE),
        ({"substitutions": {}}, "spec.substitutions", crd_jobs.IMMUTABLE),
        ({"dependsOn": [{"name": "a"}]}, "spec.dependsOn", crd_jobs.IMMUTABLE),
        ({"locks": [{"name": "a"}]}, "spec.locks", crd_jobs.IMMUTABLE),
        (
            {"startPolicy": {"concurrencyPolicy": "Allow"}},
            "spec.startPolicy",
            crd_jobs.IMMUTABLE,
        ),
        ({"template": None}, "spec.template", crd_jobs.IMMUTABLE),
        ({"template": template(maxAttempts=3)}, "spec.template.maxAttempts", "only parallelism."),
        (
            {"template": template(taskTemplate={"command": ["false"]})},
            "spec.template.taskTemplate",
            "only parallelism.maxInFlight can be changed",
        ),
        ({"template": template(parallelism=None)}, "spec.template.parallelism", "only"),
        (
            {"template": template(parallelism={"withCount": 3, "maxInFlight": 1})},
            "spec.template.parallelism.withCount",
            "only parallelism.maxInFlight",
        ),
    ],
)
def test_changed_immutable_fields_are_named(new: Any, path: str, why: str) -> None:
    ((field, problem),) = changed(BEFORE, **new)
    assert field == path
    assert why in problem


@pytest.mark.parametrize(
    "new",
    [
        {"run": 3},
        {"suspend": True},
        {"killTimestamp": "2026-01-02T03:04:05Z"},
        {"priority": 7},
        {"ttlSecondsAfterFinished": 0},
        {"template": template(parallelism={"withCount": 2, "maxInFlight": 9})},
        {"template": template(parallelism={"withCount": 2})},
    ],
)
def test_mutable_fields_can_be_changed(new: Any) -> None:
    assert changed(BEFORE, **new) == []


COPIED = {"template": TEMPLATE, "substitutions": {"jobconfig.name": "a"}, "optionValues": {"b": 1}}


@pytest.mark.parametrize("kept", [None, "a"])
@pytest.mark.parametrize("had", [{}, {"template": {"taskTemplate": {"command": ["other"]}}}])
def test_the_template_of_a_job_config_is_copied_once(kept: str | None, had: Any) -> None:
    """With a template of its own, only while `configName` is cleared."""
    before = {"configName": "a", **had}
    problems = changed(before, configName=kept, **COPIED)
    assert (problems == []) == (not had or kept is None)
    after = {**before, "configName": kept, **COPIED}
    assert changed(after, template={"taskTemplate": {"command": ["other"]}}) != []


def test_config_name_cannot_be_replaced() -> None:
    ((field, _),) = changed({"configName": "a"}, configName="b")
    assert field == "spec.configName"
