"""File jobs of a `kiln up` over plain HTTP, with checks of all documents and files at the end."""

import contextlib
import hashlib
import http.client
import json
import math
import os
import sqlite3
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib import parse

from kilnwork.api import filejobs
from kilnwork.data import part_commits
from kilnwork.data.stores import local
from kilnwork.jobs import job_directory
from support import up_server as up_support
from support import waiting

FINAL = ("Succeeded", "Failed", "Cancelled")


class Response(NamedTuple):
    """A response. `headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ExpectedResult(NamedTuple):
    """What one process makes of a file: its result, line numbers of bad records, counts."""

    result: bytes
    bad: list[int]
    lines: int
    skipped: int = 0


class UpFiles:
    """The jobs of one server, which may be killed and restarted meanwhile."""

    def __init__(self, server: up_support.UpServer) -> None:
        self.server = server
        self.directory = server.data / "files"
        self.seen: list[Any] = []
        """Documents of all jobs that were found sound."""

    def connect(self, *, timeout_s: float = 30.0) -> http.client.HTTPConnection:
        place = parse.urlsplit(self.server.http)
        return http.client.HTTPConnection(place.netloc, timeout=timeout_s)

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of every request; `_` stands for a dash."""
        token = (self.server.data / "token").read_text().strip()
        given = {name.replace("_", "-"): value for name, value in more.items()}
        return {"Authorization": f"Bearer {token}", **given}

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        connection = self.connect()
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the server has sent a refusal
                connection.request(method, path, body, self.headers(**headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, content: bytes, spec: Mapping[str, Any], **headers: str) -> str:
        """Create a job; return its id."""
        response = self.ask("POST", job_url(spec), content, **headers)
        assert response.status == 202, response.body
        return str(response.json["id"])

    def act(self, job: str, act: str) -> Any:
        """Send POST …/ACT; return the document."""
        response = self.ask("POST", f"/jobs/{job}/{act}")
        assert response.status == 202, response.body
        return response.json

    def document(self, job: str) -> Any:
        response = self.ask("GET", f"/jobs/{job}")
        assert response.status == 200, response.body
        return response.json

    def jobs(self) -> list[str]:
        return [found["id"] for found in self.ask("GET", "/jobs").json]

    def ended(self, job: str, *, timeout_s: float = 60.0) -> Any:
        def look() -> Any:
            found = self.document(job)
            return found if found["phase"] in FINAL else None

        return waiting.wait_until(look, what=f"{job} is over", timeout_s=timeout_s, every_s=0.05)

    def parts(self, job: str) -> list[Any]:
        found: list[Any] = []
        path: str | None = f"/jobs/{job}/parts?limit=1000"
        while path is not None:
            response = self.ask("GET", path)
            assert response.status == 200, response.body
            found += response.json
            link = response.headers.get("link")
            path = None if link is None else link[1 : link.index(">")]
        return found

    def result(self, job: str, query: str = "") -> bytes:
        """Return the result of the job, with `query`."""
        response = self.ask("GET", f"/jobs/{job}/results{query}")
        assert response.status == 200, response.body
        return response.body

    def stored(self, below: str = "") -> list[str]:
        """Return the files of the store below a directory, unfinished ones too."""
        found = []
        for directory, _, names in os.walk(self.directory / below):  # they may vanish meanwhile
            place = Path(directory).relative_to(self.directory)
            found += [str(place / name) for name in names if name != ".lock"]
        return sorted(found)

    def assert_sound(self, job: str, content: bytes, whole: ExpectedResult) -> None:
        """Check that every document of a succeeded job is as one process would have made it."""
        found, parts = self.document(job), self.parts(job)
        assert found["phase"] == "Succeeded", found
        assert self.result(job) == whole.result
        assert _facts(found["result"]) == _facts_of(whole.result)
        counts = {
            "total": whole.lines,
            "succeeded": whole.lines - len(whole.bad) - whole.skipped,
            "failed": len(whole.bad),
            "skipped": whole.skipped,
        }
        assert found["records"] == counts, f"{found['records']} instead of {counts}"
        assert {name: sum(p["records"][name] for p in parts) for name in counts} == counts
        size = len(parts)
        assert (found["parts"], found["succeeded"], found["completions"]) == (
            size,
            size + 1,
            size + 1,
        )
        assert found["progress"]["fraction"] == 1
        reported = {"total": size, "pending": 0, "running": 0, "succeeded": size, "failed": 0}
        assert found["progress"]["parts"] == {**reported, "cancelled": 0}
        assert not found.get("active")
        self._assert_parts(job, parts)
        self._assert_input(job, content, parts)
        self._assert_errors(job, found, parts, whole.bad)
        self.seen.append(found)

    def _assert_parts(self, job: str, parts: list[Any]) -> None:
        assert [part["part"] for part in parts] == list(range(1, len(parts) + 1))
        assert {part["state"] for part in parts} == {"Succeeded"}
        partial, at = self.result(job, "?partial=true"), 0
        for part in parts:
            piece = partial[at : at + part["result"]["bytes"]]
            at += len(piece)
            assert _facts(part["result"]) == _facts_of(piece), part
        assert at == len(partial)

    def _assert_input(self, job: str, content: bytes, parts: list[Any]) -> None:
        manifest = self.ask("GET", f"/jobs/{job}/manifest").json
        assert self.ask("GET", f"/jobs/{job}/input").body == content
        assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
        assert (manifest["bytes"], manifest["lines"]) == (
            len(content),
            sum(p["lines"] for p in parts),
        )
        end = 0
        for part, listed in zip(parts, manifest["parts"], strict=True):
            piece = content[end : listed["end"]]
            assert (listed["start"], listed["crc32"]) == (end, f"{zlib.crc32(piece):08x}")
            end = listed["end"]
            same = ("part", "start", "end", "firstLine", "lines", "run", "records")
            assert [part[name] for name in same] == [listed[name] for name in same]
            for name in ("result", "errors"):
                assert listed.get(name, {}).get("sha256") == part.get(name, {}).get("sha256")
        assert end == len(content)

    def _assert_errors(self, job: str, found: Any, parts: list[Any], bad: list[int]) -> None:
        listed = self.ask("GET", f"/jobs/{job}/errors").body.splitlines()
        assert [json.loads(line)["line"] for line in listed] == bad
        assert found.get("errors", {}).get("lines", 0) == len(bad)
        assert sum(part.get("errors", {}).get("lines", 0) for part in parts) == len(bad)

    def assert_tidy(self, *jobs: Any) -> None:
        """Check, with the server stopped, that the databases are intact and the store has what
        these jobs name.

        `jobs`: their documents.
        """
        assert self.server.process is not None
        assert self.server.process.poll() is not None, "stop the server first"
        with contextlib.closing(sqlite3.connect(self.server.data / "journal.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        local.LocalStore(self.directory).sweep(before=time.time())
        for job in jobs:
            directory = local.LocalStore(self.directory / job["storageBlobPrefix"])
            job_directory.tidy(directory, after=0.0, before=math.inf)
        named, wanted, stored = set[str](), set[str](), set(self.stored())
        for job in jobs:
            directory = job["storageBlobPrefix"]
            wanted |= {f"{directory}/job.json", f"{directory}/input"}
            records = self._commits(directory)
            newest = {commit.part: commit.run for commit in records}
            for commit in records:
                named.add(f"{directory}/{part_commits.record_key(commit.part, commit.run)}")
                both = [file for file in (commit.output, commit.errors) if file is not None]
                # an unmerged result is named by the directory of its parts
                files = [file for file in both if not file.key.endswith("/")]
                at = wanted if commit.run == newest[commit.part] else named
                at.update(f"{directory}/{file.key}" for file in files)
        stray, missing = stored - named - wanted, wanted - stored
        assert not stray, stray
        assert not missing, missing

    def _commits(self, directory: str) -> list[filejobs.Commit]:
        store = local.LocalStore(self.directory / directory)
        found = [part_commits.find(store, *one) for one in sorted(part_commits.list_runs(store))]
        return [commit for commit in found if commit is not None]


def job_url(spec: Mapping[str, Any]) -> str:
    return "/jobs?" + parse.urlencode({"spec": json.dumps(spec)})


def write_mappers(directory: Path, name: str, source: str, **constants: object) -> None:
    """Write module `name` for workers that run in `directory`."""
    given = "".join(f"{each} = {value!r}\n" for each, value in constants.items())
    (directory / f"{name}.py").write_text(given + source)


def _facts(found: Any) -> tuple[int, int, str]:
    return found["bytes"], found["lines"], found["sha256"]


def _facts_of(content: bytes) -> tuple[int, int, str]:
    return len(content), content.count(b"\n"), hashlib.sha256(content).hexdigest()
