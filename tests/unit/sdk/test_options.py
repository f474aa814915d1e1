"""Options are checked where they are written, and become the spec."""

from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.sdk import options


def nothing() -> None:
    """A task function."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"retries": -1}, "retries=-1: must be an integer from 0 to 999"),
        ({"retries": True}, "retries=True: must be an integer"),
        ({"retries": 2.0}, "retries=2.0: must be an integer"),
        ({"retry_on": "ValueError"}, "retry_on='ValueError': must be an exception class"),
        ({"retry_on": (ValueError, 3)}, "must be an exception class or a tuple of them, or None"),
        ({"retry_delay": -1}, "retry_delay=-1: must be seconds, at least 0"),
        ({"retry_factor": 0.5}, "retry_factor=0.5: must be a number, at least 1"),
        ({"timeout": 0}, "timeout=0: must be seconds, more than 0"),
        ({"timeout": "60"}, "timeout='60': must be seconds"),
        ({"total_timeout": float("nan")}, "total_timeout=nan: must be seconds"),
        ({"priority": 1.5}, "priority=1.5: must be an integer from -1000000 to 1000000"),
        ({"max_losses": 1001}, "max_losses=1001: must be an integer from 0 to 1000"),
        ({"name": ""}, "name='': must be a string of 1 to 253 characters, or None"),
        ({"cluster": 3}, "cluster=3: must be a string"),
        ({"pod": "busybox"}, "pod='busybox': must be a Pod template, such as {'spec': {"),
        ({"pod": {"image": "busybox"}}, "contains unknown field `image`"),
        ({"pod": {"spec": {"a": object()}}}, "must be a Pod template"),
        ({"pod": {"spec": {"containers": [{}, {}]}}}, "spec.containers must be one for a call"),
        ({"pod": {"metadata": {"name": "x"}}}, "metadata.name may not be given: only labels"),
        ({"pod": {"spec": {"nodeName": "${task.nam}"}}}, "spec.nodeName"),
        ({"accept_failures": 1}, "accept_failures=1: must be True or False"),
        ({"returns": 0}, "returns=0: must be an integer from 1 to 1000"),
        ({"retry": 3}, "no option is called 'retry': did you mean retry_on or"),
        ({"wholly_else": 3}, "no option is called 'wholly_else': use retries, retry_on"),
        ({"key": "k"}, "key='k' names one call, not all of a function"),
    ],
)
def test_a_bad_option_is_refused_with_its_name_value_and_remedy(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(kiln.BadOption) as caught:
        kiln.task(**given)
    assert message in str(caught.value)
    with pytest.raises(ValueError) as named:  # noqa: PT011 - a BadOption is one
        kiln.task(nothing, **given)
    assert str(named.value).startswith(f"{__name__}:nothing: ")


def test_options_become_the_spec() -> None:
    given = options.changed(
        options.Options(),
        {
            "retries": 2,
            "retry_delay": 3,
            "retry_factor": 4,
            "retry_max_delay": 50,
            "max_losses": 6,
            "timeout": 7,
            "total_timeout": 80,
            "pending_timeout": 9,
            "kill_grace": 10,
            "priority": 11,
            "cluster": "c",
            "accept_failures": True,
            "returns": 12,
        },
        of="f",
    )
    spec = options.spec(given, function="m:f", code="sha256:x", environment="e", stream=False)
    assert spec.call is not None
    assert (spec.cluster_name, spec.priority) == ("c", 11)
    assert (spec.call.function, spec.call.code, spec.call.environment) == ("m:f", "sha256:x", "e")
    assert (spec.call.returns, spec.call.accept_failures) == (12, True)
    assert (spec.retry.max_attempts, spec.retry.max_losses) == (3, 6)
    assert (spec.retry.delay_seconds, spec.retry.factor, spec.retry.max_delay_seconds) == (3, 4, 50)
    assert spec.timeouts.running_seconds == 7
    assert spec.timeouts.total_seconds == 80
    assert spec.timeouts.pending_seconds == 9
    assert spec.timeouts.kill_grace_seconds == 10
    assert (spec.executor, spec.pod) == ("worker", None)


def test_a_pod_is_a_copy_in_the_spec_and_can_be_taken_back() -> None:
    mine: dict[str, Any] = {"spec": {"containers": [{"image": "a"}]}}
    given = options.changed(options.Options(), {"pod": mine}, of="f")
    mine["spec"]["containers"][0]["image"] = "b"
    spec = options.spec(given, function="m:f", code=None, environment=None, stream=False)
    assert spec.pod is not None
    assert (spec.executor, spec.pod.spec) == ("pod", {"containers": [{"image": "a"}]})
    assert options.changed(given, {"pod": None}, of="f").pod is None
    empty = options.changed(given, {"pod": {}}, of="f").pod
    assert empty is not None
    assert (empty.spec, empty.metadata) == ({}, {})


def test_without_options_a_task_is_tried_once_and_lost_thrice() -> None:
    spec = options.spec(options.Options(), function="f", code=None, environment=None, stream=False)
    assert (spec.retry.max_attempts, spec.retry.max_losses) == (1, 3)
    assert spec.timeouts.running_seconds is None
    assert spec.timeouts.kill_grace_seconds == options.KILL_GRACE_S


def test_an_option_can_be_taken_back() -> None:
    given = options.changed(options.Options(), {"timeout": 3, "retry_on": ValueError}, of="f")
    again = options.changed(given, {"timeout": None, "retry_on": None}, of="f")
    assert again == options.Options()


def test_every_option_is_documented_and_checked() -> None:
    documented = set(options.CallChanges.__annotations__)
    kept = set(options.Options.__dataclass_fields__)
    assert documented - options.PER_CALL == kept - {"returns"}
    for name in documented:
        assert f"`{name}`" in (options.Changes.__doc__ or "") + (options.CallChanges.__doc__ or "")
