"""The specification of a job is built from the parameters of its request."""

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.server import errors
from kilnwork.server.jobs import aksjobscheduler_settings, parameters


def _read(
    given: dict[str, str], compat: aksjobscheduler_settings.Source | None = None
) -> filejobs.FileJobSpec:
    return parameters.parse_spec(given, compat=compat)


def test_no_parameters_give_the_defaults() -> None:
    assert _read({}) == filejobs.FileJobSpec()
    assert _read({"spec": ""}) == filejobs.FileJobSpec()


@pytest.mark.parametrize(
    ("name", "text", "place", "value"),
    [
        ("cluster", "big", "clusterName", "big"),
        ("clusterName", "big", "clusterName", "big"),
        ("itemsPerPart", "7", "itemsPerPart", 7),
        ("suspend", "true", "suspend", True),
        ("maxCrashes", "5", "maxCrashes", 5),
        ("maxAttempts", "4", "retry.maxAttempts", 4),
        ("timeoutSeconds", "9", "timeouts.runningSeconds", 9),
        ("format", "text", "input.format", "text"),
        ("delimiter", ";", "input.delimiter", ";"),
    ],
)
def test_flat_parameter_is_parsed_as_type_of_its_field(
    name: str, text: str, place: str, value: object
) -> None:
    document: dict[str, object] = {}
    inner = document
    *outer, last = place.split(".")
    for one in outer:
        inner = inner.setdefault(one, {})  # type: ignore[assignment]  # dicts all the way
    inner[last] = value
    assert _read({name: text}) == msgspec.convert(document, filejobs.FileJobSpec)


def test_parameter_overrides_field_of_spec() -> None:
    spec = '{"priority": 3, "maxParts": 4}'
    found = _read({"spec": spec, "priority": "5"})
    assert (found.priority, found.max_parts) == (5, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"itemsPerPart": "x"}, "itemsPerPart=x: "),
        ({"itemsPerPart": "0"}, "itemsPerPart=0: "),
        ({"maxFailedRecords": "null"}, "maxFailedRecords=null: give a value, or leave it out"),
        ({"cluster": "a", "clusterName": "b"}, "cluster=a and clusterName=b"),
        ({"spec": "[1]"}, "spec: not a JSON object"),
        ({"spec": '{"priority": "x"}', "priority": "1"}, "spec: priority: "),
        ({"mapper": "identity", "command": "cat"}, "mapper and command: give one"),
        ({"mapper": "job.py:run"}, "kiln upload"),
        ({"mapper": "run"}, "package.module:name"),
        ({"mapper": "a:b c"}, "spec.mapper.function"),
        ({"command": ""}, "command: give a program"),
        ({"command": "a 'b"}, "command=a 'b: "),
        ({"command": "a" * (parameters.MAX_SHELL_CHARS + 1)}, "8,192 characters"),
        ({"reducer": "calculator"}, "reducer: calculator maps records"),
        ({"batchRecords": "2"}, "spec.mapper.batchRecords"),
        ({"batchRecords": "two"}, "batchRecords=two: a whole number"),
        ({"spec": '{"mapper": {}}', "command": "cat"}, "give one of builtin, function, command"),
        ({"spec": '{"mapper": {"builtin": "sum"}}'}, "'sum' is not one of"),
        ({"spec": '{"mapper": {"builtin": "identity", "code": "x"}}'}, "spec.mapper.code: only"),
        ({"spec": '{"mapper": {"function": "a:b", "code": "x"}}'}, "spec.mapper.code: 'x' is no"),
    ],
)
def test_invalid_parameter_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        _read(given)
    assert message in str(caught.value)


def test_equal_values_of_cluster_and_clustername_are_accepted() -> None:
    assert _read({"cluster": "a", "clusterName": "a"}).cluster_name == "a"


def test_spec_above_size_limit_is_refused() -> None:
    def words(count: int) -> dict[str, str]:
        return {"command": msgspec.json.encode(["a" * count]).decode()}

    frame = len(msgspec.json.encode(_read(words(1)))) - 1
    assert _read(words((64 << 10) - frame)).mapper.command
    with pytest.raises(errors.BadRequest, match="65,536 bytes"):
        _read(words((64 << 10) - frame + 1))


@pytest.mark.parametrize("text", ["jq -c '.a b'", '["jq", "-c", ".a b"]', ' ["jq","-c",".a b"]'])
def test_command_is_parsed_as_shell_line_or_json_array(text: str) -> None:
    assert _read({"command": text}).mapper.command == ("jq", "-c", ".a b")


@pytest.mark.parametrize(
    ("given", "placement"),
    [
        ({"aci": "1"}, "aci"),
        ({"aci": "1", "gpu": "k80"}, "aci"),
        ({"aci": "true"}, None),
        ({"gpu": "k80"}, "gpu"),
        ({"gpu": ""}, None),
        ({"batch": "0"}, None),
        ({"aci": "1", "placement": "here"}, "here"),
    ],
)
def test_placement_is_parsed_as_by_source_system(
    given: dict[str, str], placement: str | None
) -> None:
    assert _read(given).placement == placement


def test_batch_1_is_refused() -> None:
    with pytest.raises(errors.UnprocessableContent, match="batch=1"):
        _read({"batch": "1"})


def test_source_sizes_are_only_defaults() -> None:
    compat = aksjobscheduler_settings.read({"ITEMSPERJOB": "7", "MAXPARALLELISM": "3"})
    found = _read({}, compat)
    assert (found.items_per_part, found.parallelism) == (7, 3)
    found = _read({"spec": '{"itemsPerPart": 8}', "parallelism": "4"}, compat)
    assert (found.items_per_part, found.parallelism) == (8, 4)


@pytest.mark.parametrize(
    ("query", "merged"),
    [
        ({}, {"mapper": "identity", "name": "a"}),
        ({"name": "b"}, {"mapper": "identity", "name": "b"}),
        ({"command": "cat"}, {"command": "cat", "name": "a"}),
    ],
)
def test_query_overrides_fields_of_form(query: dict[str, str], merged: dict[str, str]) -> None:
    assert parameters.merge_parameters({"mapper": "identity", "name": "a"}, query) == merged
