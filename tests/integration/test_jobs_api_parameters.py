"""Each parameter and header of the Jobs API: it has its effect on the job, or a warning names
it.
"""

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib import parse

import pytest

from kilnwork.server.jobs import (
    aksjobscheduler_settings,
    ignored_fields,
    parameter_reference,
    parameters,
    settings,
)
from support import jobs_http

LINES = b'{"id":"1"}\n{"id":"2"}\n'
FORM = "multipart/form-data; boundary=xyz"

SENT: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "mapper": ("identity", ("mapper", "builtin"), "identity"),
    "command": ("cat -n", ("mapper", "command"), ["cat", "-n"]),
    "batchRecords": ("7", ("mapper", "batchRecords"), 7),
    "reducer": ("identity", ("reducer", "builtin"), "identity"),
    "format": ("text", ("input", "format"), "text"),
    "blank": ("record", ("input", "blank"), "record"),
    "maxLineBytes": ("2048", ("input", "maxLineBytes"), 2048),
    "gzip": ("true", ("input", "gzip"), True),
    "delimiter": (";", ("input", "delimiter"), ";"),
    "itemsPerPart": ("1", ("itemsPerPart",), 1),
    "bytesPerPart": ("11", ("bytesPerPart",), 11),
    "maxParts": ("3", ("maxParts",), 3),
    "parallelism": ("2", ("parallelism",), 2),
    "badRecords": ("fail", ("badRecords",), "fail"),
    "maxFailedRecords": ("4", ("maxFailedRecords",), 4),
    "maxFailedPercent": ("2.5", ("maxFailedPercent",), 2.5),
    "maxAttempts": ("8", ("retry", "maxAttempts"), 8),
    "maxCrashes": ("9", ("maxCrashes",), 9),
    "timeoutSeconds": ("60", ("timeouts", "runningSeconds"), 60),
    "name": ("ours", ("name",), "ours"),
    "cluster": ("second", ("clusterName",), "second"),
    "clusterName": ("second", ("clusterName",), "second"),
    "priority": ("5", ("priority",), 5),
    "suspend": ("true", ("suspend",), True),
    "ttlSecondsAfterFinished": ("77", ("ttlSecondsAfterFinished",), 77),
    "spec": ('{"name": "whole"}', ("name",), "whole"),
    "placement": ("edge", ("placement",), "edge"),
    "aci": ("1", ("placement",), "aci"),
    "gpu": ("K80", ("placement",), "gpu"),
    "gpuQuantity": ("2", (), None),
    "batch": ("0", (), None),
}
"""What is sent of each, and where the job's spec has it."""

BESIDE = {"batchRecords": {"mapper": "os.path:join"}, "delimiter": {"format": "csv"}}
ROWS = [(name, one.outcome) for one in parameter_reference.TABLE for name in one.names]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


def test_documentation_table_lists_all_parameters() -> None:
    names = [name for name, _ in ROWS]
    assert len(names) == len(set(names))
    assert set(names) == {*parameters.KNOWN, "file"} == {*SENT, "file"}


def _found(spec: Any, place: tuple[str, ...]) -> Any:
    for one in place:
        spec = spec[one]
    return spec


@pytest.mark.parametrize("way", ["query", "form"])
@pytest.mark.parametrize(("name", "outcome"), [row for row in ROWS if row[0] != "file"])
async def test_each_parameter_does_what_the_table_states(
    world: jobs_http.World, name: str, outcome: parameter_reference.Outcome, way: str
) -> None:
    text, place, wanted = SENT[name]
    given = {**BESIDE.get(name, {}), name: text}
    content = gzip.compress(LINES) if name == "gzip" else LINES
    if way == "query":
        made = await world.ask("POST", "/jobs?" + parse.urlencode(given), content)
    else:
        fields = {f"{each}-sent": value for each, value in given.items()}
        data = jobs_http.form(content, **fields).replace(b"-sent", b"")
        made = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    assert made.status == 202, made.body
    assert _found(made.json["spec"], place) == (wanted if place else made.json["spec"])
    named = [one for one in made.json.get("warnings", ()) if one.startswith((f"{name}=", name))]
    if outcome is parameter_reference.Outcome.WARNED:
        assert len(named) == 1
        assert made.headers["warning"].startswith('299 - "')
        assert "ignored" in named[0] or "changes nothing" in named[0]
    else:
        assert "warnings" not in made.json
        assert "warning" not in made.headers


async def test_named_form_field_is_the_file(world: jobs_http.World) -> None:
    file = (await world.ask("POST", "/files", LINES)).json["id"]
    made = await world.ask("POST", f"/jobs?file={file}", b'{"name": "body"}')
    assert (made.status, made.json["input"]["lines"]) == (202, 2)
    assert made.json["spec"]["name"] == "body"


async def test_warning_stays_with_the_job(world: jobs_http.World) -> None:
    made = await world.ask("POST", "/jobs?placement=edge", LINES)
    again = await world.ask("GET", f"/jobs/{made.json['id']}")
    assert again.json["warnings"] == made.json["warnings"]
    text = await world.ask("POST", "/jobs?placement=edge", LINES, Accept="text/plain")
    assert "placement: 'edge' is kept" in text.headers["warning"]


async def test_invalid_delimiter_is_refused(world: jobs_http.World) -> None:
    made = await world.ask("POST", "/jobs?delimiter=%3B", LINES)
    assert ["input.delimiter" in one for one in made.json["warnings"]] == [True]


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("/jobs?palcement=x", "palcement"),
        ("/jobs?batch=1", "batch=1"),
        ("/jobs?cluster=default&clusterName=other", "cluster=default and clusterName=other"),
        ('/jobs?spec={"palcement":1}', "palcement"),
        ('/jobs?spec={"input":{"palcement":1}}', "palcement"),
        ('/jobs?spec={"name":"a","name":"b"}', "'name' comes more than once"),
        ('/jobs?spec={"mapper":{"builtin":"identity","image":"x"}}', "image"),
        ('/jobs?spec={"retry":{"limit":1}}', "limit"),
        ("/files?name=x", "name"),
        ("/jobs/JOB/cancel?why=x", "why"),
    ],
)
async def test_unknown_parameter_is_refused_by_name(
    world: jobs_http.World, where: str, named: str
) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    asked = parse.quote(where.replace("JOB", job), safe="/?=&")
    refused = await world.ask("POST", asked, b"" if "JOB" in where else LINES)
    assert refused.status in (400, 422)
    assert named in refused.json["detail"]


async def test_unknown_form_fields_and_spec_members_are_refused(world: jobs_http.World) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    data = jobs_http.form(LINES, palcement="x")
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    assert (refused.status, "palcement" in refused.json["detail"]) == (400, True)
    for patch in (b'{"image": 1}', b'{"spec": {"image": 1}}', b'{"priority": 1, "priority": 2}'):
        refused = await world.ask("PATCH", f"/jobs/{job}", patch)
        assert refused.status == 400
        assert "image" in refused.json["detail"] or "more than once" in refused.json["detail"]


async def test_conflicting_result_options_are_refused(world: jobs_http.World) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    refused = await world.ask("GET", f"/jobs/{job}/results?part=1&partial=true")
    assert (refused.status, "part and partial" in refused.json["detail"]) == (400, True)


async def test_encoded_form_field_is_refused(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES).replace(
        b"application/octet-stream", b"text/plain\r\nContent-Transfer-Encoding: base64"
    )
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    refused.assert_problem(415, "Content-Transfer-Encoding: base64")


@pytest.mark.parametrize("name", ignored_fields.HEADERS)
async def test_ignored_header_is_warned_of(world: jobs_http.World, name: str) -> None:
    given: dict[str, Any] = {name.replace("-", "_"): "1"}
    responses = [await world.ask("GET", "/jobs", **given)]
    if name != "idempotency-key":
        responses.append(await world.ask("POST", "/jobs", LINES, **given))
        reported = responses[-1].json["warnings"]
        assert [one.lower().startswith(f"{name} is ignored") for one in reported] == [True]
    for response in responses:
        assert response.status < 300
        assert f"{name} is ignored" in response.headers["warning"].lower()


async def test_namespace_with_all_namespaces_is_refused(world: jobs_http.World) -> None:
    listed = await world.ask("GET", "/jobs?allNamespaces=true&namespace=team")
    assert "namespace is ignored" in listed.headers["warning"]


async def test_unknown_parameter_without_a_token_is_a_warning(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(source=aksjobscheduler_settings.Source())
    async with jobs_http.World(tmp_path, chosen).running() as world:
        made = await world.ask(
            "POST", "/jobs?flavour=x", LINES, token="", Accept="application/json"
        )
    assert made.status == 202, made.body
    assert json.loads(made.body)["warnings"] == ["'flavour' is ignored: no parameter has this name"]
