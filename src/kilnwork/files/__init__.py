"""Mapping the records of a file: `files.map(path, function)`, a task for each part of the file.

A public door, like `kilnwork` itself: `from kilnwork import files`. Works in any session,
`kiln.start()` as `kiln.connect()`, with the engine of `kiln upload`: the same records, parts, bad
records and bytes of the result. No job is made: what is mapped belongs to the program, as its
other tasks do. For a file that outlives its program, upload it.
"""

from kilnwork.files.bad_records import BadRecord, BadRecords
from kilnwork.files.mapped_file import Mapped
from kilnwork.files.mapping import map  # noqa: A004 - files.map
from kilnwork.jobs.work.errors import FailPart, RecordsRefused

__all__ = ["BadRecord", "BadRecords", "FailPart", "Mapped", "RecordsRefused", "map"]
