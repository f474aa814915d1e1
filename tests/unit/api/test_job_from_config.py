"""Expansion of a Job by its JobConfig, and the Jobs created from a JobConfig."""

from typing import Any

import msgspec
import pytest
import yaml

from kilnwork.api import (
    job,
    job_config,
    job_config_options,
    job_from_config,
    job_indexes,
    job_task_rendering,
    job_validation,
    meta,
    names,
)

COMMAND = {"taskTemplate": {"command": ["echo", "${option.user} ${jobconfig.name}"]}}


def config(**spec: Any) -> job_config.JobConfig:
    made = {
        "metadata": {"name": "greet", "namespace": "lab", "uid": "c-1"},
        "spec": {
            "concurrency": {"policy": "Forbid"},
            "template": {"spec": COMMAND, "metadata": {"labels": {"team": "a", "tier": "b"}}},
            "option": {"options": [{"type": "String", "name": "user"}]},
            **spec,
        },
    }
    return msgspec.convert(made, job_config.JobConfig)


def declared(metadata: dict[str, Any] | None = None, **spec: Any) -> job.Job:
    meta_ = {"name": "j", "namespace": "lab", "uid": "j-1", "resourceVersion": "7"}
    made = {"metadata": {**meta_, **(metadata or {})}, "spec": {"configName": "greet", **spec}}
    return msgspec.convert(made, job.Job)


def expanded(config_: job_config.JobConfig, given: job.Job) -> job.Job:
    """Return the Job after the patch."""
    found = job_from_config.expand(config_, given)
    return msgspec.structs.replace(given, metadata=found.metadata, spec=found.spec)


def test_the_template_is_copied_and_the_config_owns_the_job() -> None:
    made = expanded(config(), declared())
    assert made.spec.config_name is None
    assert made.spec.template == config().spec.template.spec
    assert made.metadata.labels == {
        "team": "a",
        "tier": "b",
        "kilnwork.dev/job-config-uid": "c-1",
    }
    assert made.metadata.owner_references == (
        meta.OwnerReference(
            api_version="kilnwork.dev/v1alpha1",
            kind="JobConfig",
            name="greet",
            uid="c-1",
            controller=True,
            block_owner_deletion=True,
        ),
    )
    assert job_validation.validate_job(made) == []
    assert job_validation.validate_job_update(declared(), made) == []


def test_settings_of_the_job_take_precedence_over_the_config() -> None:
    of_config = {
        "priority": 5,
        "locks": [{"name": "db"}],
        "ttlSecondsAfterFinished": 60,
        "ttlSecondsAfterFailed": 600,
    }
    plain = expanded(config(**of_config), declared()).spec
    assert (plain.priority, plain.locks) == (5, (job.Lock(name="db"),))
    assert (plain.ttl_seconds_after_finished, plain.ttl_seconds_after_failed) == (60, 600)
    assert plain.start_policy.concurrency_policy is job.ConcurrencyPolicy.FORBID
    own = {
        "priority": -1,
        "locks": [{"name": "disk", "mode": "Shared"}],
        "ttlSecondsAfterFinished": 0,
        "ttlSecondsAfterFailed": 1,
        "startPolicy": {"concurrencyPolicy": "Allow", "startAfter": "2030-01-01T00:00:00Z"},
    }
    metadata = {"labels": {"team": "mine"}, "annotations": {"a": "b"}}
    made = expanded(config(**of_config), declared(metadata, **own))
    said = msgspec.json.decode(msgspec.json.encode(made.spec))
    assert {name: said[name] for name in own} == own
    assert made.metadata.labels["team"] == "mine"
    assert made.metadata.annotations == {"a": "b"}


def test_a_template_beside_a_config_name_is_replaced_with_a_warning() -> None:
    own = {"taskTemplate": {"command": ["own"], "args": ["x"]}}
    found = job_from_config.expand(config(), declared(template=own))
    assert found.spec.template == config().spec.template.spec
    (warning,) = found.warnings
    assert warning.startswith("spec.template was replaced by that of JobConfig greet")
    assert job_from_config.expand(config(), declared()).warnings == ()


def test_a_label_with_the_uid_of_another_config_is_overwritten() -> None:
    metadata = {"labels": {job_from_config.CONFIG_UID: "other"}}
    made = expanded(config(), declared(metadata))
    assert made.metadata.labels[job_from_config.CONFIG_UID] == "c-1"


def test_a_job_keeps_its_other_owners_and_has_one_controller() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o-1"}
    old = {"apiVersion": "kilnwork.dev/v1alpha1", "kind": "JobConfig", "name": "x", "uid": "c-1"}
    controller = {**other, "controller": True}
    for given, owners in (
        ([other], [("o-1", False), ("c-1", True)]),
        ([controller], [("o-1", True), ("c-1", False)]),
        ([old], [("c-1", True)]),
    ):
        made = expanded(config(), declared({"ownerReferences": given})).metadata
        assert [(one.uid, one.controller) for one in made.owner_references] == owners


def test_patch_keeps_null_values_of_the_template() -> None:
    call = {"call": {"function": "m:f", "kwargs": {"nothing": None}}}
    found = job_from_config.expand(config(template={"spec": {"taskTemplate": call}}), declared())
    operations = {one["path"]: (one["op"], one["value"]) for one in found.patch}
    assert operations["/metadata/resourceVersion"] == ("replace", "7")
    assert operations["/spec"][0] == "replace"
    spec = operations["/spec"][1]
    assert spec["template"]["taskTemplate"]["call"]["kwargs"] == {"nothing": None}
    assert "configName" not in spec
    assert msgspec.convert(spec, job.JobSpec) == found.spec
    assert operations["/metadata/annotations"] == ("add", {})
    assert operations["/metadata/ownerReferences"][1][0]["blockOwnerDeletion"] is True


TYPED = {
    "options": [
        {"type": "String", "name": "user", "required": True, "string": {"trimSpaces": True}},
        {"type": "Multi", "name": "tags", "multi": {"values": ["a", "b"], "delimiter": "+"}},
        {"type": "Select", "name": "tone", "select": {"values": ["dry"], "default": "dry"}},
        {"type": "Bool", "name": "loud", "bool": {"format": "YesNo"}},
        {"type": "Bool", "name": "plain"},
        {"type": "Int", "name": "count", "int": {"default": 2}},
        {"type": "Int", "name": "none"},
        {"type": "JSON", "name": "extra"},
    ]
}


def test_values_of_options_keep_their_types_and_texts_become_substitutions() -> None:
    given = {"user": " ann${job.uid} ", "tags": ["b", "a"], "extra": {"a": None}}
    made = expanded(config(option=TYPED), declared(optionValues=given))
    assert made.spec.substitutions == {
        "option.user": "ann${job.uid}",
        "option.tags": "b+a",
        "option.tone": "dry",
        "option.loud": "no",
    }
    values = job_config_options.parse_values(made.spec.option_values)
    assert values == {
        **given,
        "tone": "dry",
        "loud": False,
        "plain": False,
        "count": 2,
        "none": None,
    }
    found = job_from_config.variables(made)
    of_options = {name: value for name, value in found.items() if name.startswith("option.")}
    assert of_options == {
        **made.spec.substitutions,
        "option.plain": False,
        "option.count": 2,
        "option.none": None,
        "option.extra": {"a": None},
    }


def test_expanded_values_can_be_used_for_another_job() -> None:
    first = expanded(config(option=TYPED), declared(optionValues="user: ann\ntags: [a, b]\n"))
    again = expanded(config(option=TYPED), declared(optionValues=first.spec.option_values))
    assert again.spec == first.spec


def test_invalid_option_values_are_refused() -> None:
    with pytest.raises(
        job_config_options.InvalidOptions, match=r"spec\.optionValues\.user is needed"
    ):
        job_from_config.expand(config(option=TYPED), declared())
    with pytest.raises(
        job_config_options.InvalidOptions, match=r"spec\.optionValues\.usr is no option"
    ):
        job_from_config.expand(config(), declared(optionValues={"usr": "x"}))


def test_substitutions_take_precedence_over_other_variables() -> None:
    given = {"option.user": "s", "job.name": "t", "option.free": "f"}
    made = expanded(config(), declared(optionValues={"user": "v"}, substitutions=given))
    assert job_from_config.variables(made).items() >= given.items()


def test_variables_of_a_job_with_a_config() -> None:
    found = job_from_config.variables(
        expanded(
            config(), declared({"annotations": {job_from_config.SCHEDULE_TIME: "86400"}}, run=2)
        )
    )
    assert found == {
        "job.uid": "j-1",
        "job.name": "j",
        "job.namespace": "lab",
        "job.type": "Adhoc",
        "job.max_attempts": 1,
        "job.run": 2,
        "job.scheduled_time": "1970-01-02T00:00:00Z",
        "jobconfig.uid": "c-1",
        "jobconfig.name": "greet",
        "jobconfig.namespace": "lab",
        "task.namespace": "lab",
        "option.user": "",
    }


def test_variables_of_a_job_with_its_own_template() -> None:
    given = declared(
        configName=None,
        template={**COMMAND, "retry": {"maxAttempts": 3}},
        optionValues="user: ann\ncopies: 3\n",
        substitutions={"option.user": "bob"},
    )
    found = job_from_config.variables(given)
    assert (found["option.user"], found["option.copies"]) == ("bob", 3)
    assert (found["job.max_attempts"], found["job.scheduled_time"]) == (3, "")
    assert not [name for name in found if name.startswith("jobconfig.")]


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "9" * 13, "1e3", "٣", "253402300800"])
def test_invalid_schedule_time_annotation_is_no_tick(text: str) -> None:
    assert (
        job_from_config.tick_of(declared({"annotations": {"kilnwork.dev/schedule-time": text}}))
        is None
    )


def test_job_of_a_tick_has_its_name_and_annotations() -> None:
    made = job_from_config.new_job(config(), tick=1_767_225_600)
    assert made["metadata"]["name"] == "greet-1767225600"
    assert "generateName" not in made["metadata"]
    assert made["metadata"]["annotations"] == {"kilnwork.dev/schedule-time": "1767225600"}
    assert made["spec"]["type"] == "Scheduled"
    assert made["spec"]["startPolicy"] == {"concurrencyPolicy": "Forbid"}
    assert made["spec"]["template"]["taskTemplate"]["command"] == [
        "echo",
        "${option.user} ${jobconfig.name}",
    ]
    read = msgspec.convert(made, job.Job)
    assert job_from_config.tick_of(read) == 1_767_225_600
    assert job_from_config.config_of(read) == read.metadata.owner_references[0]
    assert job_validation.validate_job(read) == []


def test_backfill_has_a_scheduled_time_but_is_not_a_tick() -> None:
    request = job_from_config.JobRequest(name="ignored", annotations={"a": "b"})
    made = job_from_config.backfill_job(config(), request, tick=1_767_225_600)
    assert made["metadata"]["name"] == "greet-1767225600"
    assert made["metadata"]["annotations"] == {
        "a": "b",
        "kilnwork.dev/schedule-time": "1767225600",
        "kilnwork.dev/backfill": "true",
    }
    assert "type" not in made["spec"], "Adhoc is the default"
    read = msgspec.convert(made, job.Job)
    assert job_from_config.tick_of(read) is None
    assert job_from_config.variables(read)["job.scheduled_time"] == "2026-01-01T00:00:00Z"
    assert job_validation.validate_job(read) == []


def test_the_name_of_a_tick_of_the_longest_config_is_a_label() -> None:
    name = job_from_config.scheduled_name("c" * job_config.MAX_NAME, job_from_config.MAX_TICK)
    assert names.is_dns_label(name)


def test_job_on_request_has_the_settings_of_the_config() -> None:
    request = job_from_config.JobRequest(
        option_values={"user": "ann"},
        start_after="2030-01-01T00:00:00Z",
        labels={"tier": "mine"},
        annotations={"a": "b"},
        priority=3,
    )
    made = job_from_config.new_job(config(), request)
    assert made["apiVersion"] == "kilnwork.dev/v1alpha1"
    assert made["kind"] == "Job"
    assert made["metadata"]["generateName"] == "greet-"
    assert "name" not in made["metadata"]
    assert made["metadata"]["labels"]["tier"] == "mine"
    read = msgspec.convert(made, job.Job)
    assert read.spec.type is job.JobType.ADHOC
    assert read.spec.priority == 3
    # what will run then is not known
    assert read.spec.start_policy.concurrency_policy is job.ConcurrencyPolicy.ENQUEUE
    assert read.spec.substitutions == {"option.user": "ann"}


def test_job_on_request_has_the_requested_name_and_policy() -> None:
    request = job_from_config.JobRequest(
        name="mine",
        start_after="2030-01-01T00:00:00Z",
        concurrency_policy=job.ConcurrencyPolicy.REPLACE,
    )
    made = job_from_config.new_job(config(), request)
    assert made["metadata"]["name"] == "mine"
    assert made["spec"]["startPolicy"]["concurrencyPolicy"] == "Replace"
    begun = job_from_config.new_job(config(), job_from_config.JobRequest(generate_name="x-"))
    assert begun["metadata"]["generateName"] == "x-"


def test_furiko_manifest_is_expanded_to_its_pod_commands() -> None:
    """Options, a matrix and a shell's variables, from the manifest to the strings of a
    container.
    """
    greet, given = yaml.safe_load_all(FURIKO)
    config_ = msgspec.convert(greet, job_config.JobConfig)
    assert list(job_config_options.problems(config_.spec.option)) == []
    made = expanded(config_, msgspec.convert(given, job.Job))
    assert made.spec.template is not None
    assert made.spec.template.task_template is not None
    indexes = job_indexes.IndexSet(made.spec.template.parallelism)
    template = job_task_rendering.Template.of(
        made.spec.template.task_template,
        job_from_config.variables(made),
        later=job_task_rendering.index_variables(indexes, "greet-1", 0),
    )
    pod = template.render(job_task_rendering.index_variables(indexes, "greet-1", 2)).pod
    assert pod is not None
    (container,) = pod.spec["containers"]
    assert container["args"] == ["Hello Ada from oslo in greet-1, try ${task.retry_index}; ${HOME}"]
    assert container["env"] == [
        {"name": "DAY", "value": ""},
        {"name": "T", "value": "tea,trains-s"},
    ]


FURIKO = """
metadata: {name: greet, namespace: lab, uid: c-1}
spec:
  concurrency: {policy: Forbid}
  option:
    options:
      - {type: String, name: user-name, required: true, string: {trimSpaces: true}}
      - {type: Bool, name: shout, bool: {format: Custom, trueVal: "-s", falseVal: ""}}
      - {type: Multi, name: topics, multi: {delimiter: ",", values: [weather, trains, tea]}}
      - {type: Date, name: day, date: {format: YYYY-MM-DD}}
  template:
    spec:
      parallelism: {withMatrix: {city: [lima, oslo], floor: ["1", "2"]}}
      taskTemplate:
        pod:
          spec:
            containers:
              - name: main
                args:
                  - "Hello ${option.user-name} from ${task.index_matrix.city} in ${job.name}, \\
                    try ${task.retry_index}; ${HOME}"
                env:
                  - {name: DAY, value: "${option.day}"}
                  - {name: T, value: "${option.topics}${option.shout}"}
---
metadata: {name: greet-1, namespace: lab, uid: j-1}
spec:
  configName: greet
  optionValues: |
    user-name: Ada
    shout: true
    topics: [tea, trains]
"""
