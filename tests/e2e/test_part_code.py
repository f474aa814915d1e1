"""A mapper whose code is in a blob: slots load it, and its module state lasts across parts."""

from pathlib import Path
from typing import Any

import msgspec

import kilnwork as kiln
from kilnwork.api import filejobs
from kilnwork.data import local_blobs
from kilnwork.jobs.work import part
from kilnwork.sdk import serialization, session
from support import local_parts

map_part = kiln.task(part.run)


def test_function_in_a_blob_maps_parts(tmp_path: Path) -> None:
    seen: list[int] = []

    def counted(record: dict[str, int]) -> Any:
        seen.append(record["n"])
        return len(seen)

    content = b"".join(b'{"n":%d}\n' % n for n in range(6))
    with kiln.start(slots=1):
        code = serialization.pack_by_value(counted, counted, along=True)
        digest, _ = session.current().blobs.put((code,))
        mapper = {"function": "test:counted", "code": local_blobs.text(digest)}
        here = local_parts.World(tmp_path / "job", content, itemsPerPart=2, mapper=mapper)
        works = [here.work(each.number) for each in here.manifest.parts]
        done = [
            msgspec.convert(map_part.submit(msgspec.to_builtins(work)).result(30), filejobs.Commit)
            for work in works
        ]
    assert [here.content(commit.output) for commit in done] == [b"1\n2\n", b"3\n4\n", b"5\n6\n"]
