"""Maps the records of a file: `files.map(path, function)` runs a task for each part of the file.

Public API, like `kilnwork` itself: `from kilnwork import files`. Works in any session, whether of
`kiln.start()` or `kiln.connect()`. It reads and maps records with the same code as `kiln upload`,
so records, parts, bad records and the bytes of the result are the same. No file job is created: the
tasks belong to the program, like its other tasks. To map a file independently of the program,
upload it.
"""

from kilnwork.files.bad_records import BadRecord, BadRecords
from kilnwork.files.mapped_file import Mapped
from kilnwork.files.mapping import map  # noqa: A004 - files.map
from kilnwork.jobs.work.errors import FailPart, RecordsRefused

__all__ = ["BadRecord", "BadRecords", "FailPart", "Mapped", "RecordsRefused", "map"]
