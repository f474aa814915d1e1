"""The Pod of an attempt: its name, what it is labelled with, and what its containers get."""

import copy
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from kilnwork.api import attempts, substitution
from kilnwork.api import pod as api_pod
from kilnwork.api import task as api_task
from kilnwork.executors import port
from kilnwork.executors.pod import template
from kilnwork.kit import ids

TASK = ids.task_id("018f3a5e-0000-7000-8000-000000000001")
REF = attempts.AttemptRef(TASK, 2, 3)
UID = ids.task_text(TASK)


def an_attempt(
    spec: dict[str, Any] | None = None, *, name: str = "t", owner: str = UID, **metadata: Any
) -> port.Attempt:
    body = {"containers": [{"name": "main"}]} if spec is None else spec
    return port.Attempt(
        ref=REF,
        namespace="ns",
        name=name,
        owner_uid=owner,
        spec=api_task.TaskSpec(pod=api_task.PodTemplate(spec=body, metadata=metadata)),
    )


def env_of(pod: dict[str, Any], group: str = "containers", at: int = 0) -> list[Any]:
    found: list[Any] = pod["spec"][group][at]["env"]
    return found


refs = st.builds(
    attempts.AttemptRef,
    st.binary(min_size=16, max_size=16).map(ids.TaskId),
    st.integers(1, 2**31 - 1),
    st.integers(1, 10_000),
)


@hypothesis.given(st.text(max_size=300), refs)
@hypothesis.example("b" * 253, REF)
def test_a_name_is_a_host_name_of_at_most_63_characters(
    name: str, ref: attempts.AttemptRef
) -> None:
    made = template.pod_name(name, ref)
    assert len(made) <= 63
    assert made == made.lower()
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in made)
    assert made[0].isalnum()
    assert made[-1].isalnum()


@hypothesis.given(st.lists(st.tuples(st.sampled_from(["a", "b" * 253]), refs), unique_by=str))
def test_no_two_attempts_share_a_name(given: list[tuple[str, attempts.AttemptRef]]) -> None:
    by_ref = {ref: template.pod_name(name, ref) for name, ref in given}
    assert len(set(by_ref.values())) == len(by_ref)


def test_a_long_name_of_a_task_is_cut_and_kept_in_an_annotation() -> None:
    name = "a." * 126 + "a"
    metadata = template.pod(an_attempt(name=name))["metadata"]
    assert metadata["annotations"][template.TASK_ANNOTATION] == name
    assert all(len(value) <= 63 for value in metadata["labels"].values())
    assert metadata["ownerReferences"][0]["name"] == name


def seen_as(**metadata: Any) -> api_pod.Pod:
    """The Pod of an attempt, with this in its metadata."""
    made = template.pod(an_attempt(name="a.long-name"))
    return msgspec.convert({**made, "metadata": made["metadata"] | metadata}, api_pod.Pod)


def test_its_name_leads_back_to_the_attempt() -> None:
    seen = seen_as()
    assert template.ref_of(seen) == REF
    assert template.pod_name(template.task_name_in(seen), REF) == seen.metadata.name


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}},
        {"labels": {template.EXECUTOR_LABEL: "pod", template.ATTEMPT_LABEL: "9"}},
        {"finalizers": []},
        {"annotations": {}},
    ],
)
def test_changed_labels_do_not_hide_a_pod(change: dict[str, Any]) -> None:
    assert template.ref_of(seen_as(**change)) == REF


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}, "finalizers": []},
        {"name": "a-018f3a5e00007000800000000000000-1-1"},
        {"name": "a-018f3a5e000070008000000000000001-0-1"},
        {"name": "default-0"},
    ],
)
def test_other_pods_lead_nowhere(change: dict[str, Any]) -> None:
    assert template.ref_of(seen_as(**change)) is None


def test_labels_and_annotations_of_users_are_kept_but_not_over_ours() -> None:
    labels = {"team": "docs", template.RUN_LABEL: "77", "app.kubernetes.io/name": "mine"}
    metadata = template.pod(an_attempt(labels=labels, annotations={"a": "b"}))["metadata"]
    assert metadata["labels"]["team"] == "docs"
    assert metadata["annotations"]["a"] == "b"
    assert metadata["labels"][template.RUN_LABEL] == str(REF.run)
    assert metadata["labels"].items() >= template.MANAGED.items()


def test_the_pod_of_a_task_object_is_owned_by_it_and_held() -> None:
    metadata = template.pod(an_attempt())["metadata"]
    assert metadata["finalizers"] == [template.FINALIZER]
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Task", UID, True)
    assert "blockOwnerDeletion" not in owner  # which would need a right of its own


def test_the_pod_of_a_spawned_task_has_no_owner() -> None:
    assert "ownerReferences" not in template.pod(an_attempt(owner=""))["metadata"]


@pytest.mark.parametrize(
    ("given", "made"), [({}, "Never"), ({"restartPolicy": "OnFailure"}, "OnFailure")]
)
def test_a_pod_is_not_restarted_unless_it_says_so(given: dict[str, Any], made: str) -> None:
    pod = template.pod(an_attempt({"containers": [{"name": "main"}], **given}))
    assert pod["spec"]["restartPolicy"] == made


def test_every_container_knows_its_attempt() -> None:
    spec = {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "c"}]}
    pod = template.pod(an_attempt(spec, name="words"))
    wanted = {
        "TASK_NAME": "words",
        "TASK_NAMESPACE": "ns",
        "KILN_TASK_ID": UID,
        "KILN_RUN": "2",
        "KILN_ATTEMPT": "3",
    }
    for group, at in (("containers", 0), ("containers", 1), ("initContainers", 0)):
        given = {entry["name"]: entry["value"] for entry in env_of(pod, group, at)}
        assert given.items() >= wanted.items()


def test_own_variables_take_precedence_and_may_refer_to_ours() -> None:
    own = [
        {"name": "KILN_RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "OUT", "value": "/out/$(KILN_ATTEMPT)"},
    ]
    env = env_of(template.pod(an_attempt({"containers": [{"name": "main", "env": own}]})))
    assert [entry for entry in env if entry["name"] == "KILN_RUN"] == own[:1]
    names = [entry["name"] for entry in env]
    assert names.index("KILN_ATTEMPT") < names.index("OUT")  # $(…) refers only to what came before


def test_the_template_itself_is_not_changed() -> None:
    spec = {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}
    before = copy.deepcopy(spec)
    attempt = an_attempt(spec)
    assert template.pod(attempt) == template.pod(attempt)
    assert spec == before


def test_a_task_without_a_template_is_a_mistake() -> None:
    attempt = port.Attempt(
        ref=REF, namespace="ns", name="t", owner_uid="", spec=api_task.TaskSpec()
    )
    with pytest.raises(ValueError, match="no pod template"):
        template.pod(attempt)


def test_variables_are_substituted_in_spec_and_metadata() -> None:
    spec = {
        "containers": [
            {"name": "main", "image": "a:${task.attempt}", "args": ["${task.name}", "${HOME}"]}
        ],
        "terminationGracePeriodSeconds": "${task.run}",
    }
    made = template.pod(an_attempt(spec, name="x", labels={"who": "${task.namespace}"}))
    container = made["spec"]["containers"][0]
    assert (container["image"], container["args"]) == ("a:3", ["x", "${HOME}"])
    assert made["spec"]["terminationGracePeriodSeconds"] == 2
    assert made["metadata"]["labels"]["who"] == "ns"


def test_unknown_variable_is_refused_with_its_place() -> None:
    with pytest.raises(substitution.InvalidTemplate, match=r"spec\.pod\.spec\.nodeName"):
        template.pod(an_attempt({"containers": [], "nodeName": "${task.nope}"}))
