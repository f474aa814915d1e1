"""Reference table of the parameters of POST /jobs, for the documentation.

`make docs` writes the table; a test sends each parameter and compares. Not used by the server.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

BEGIN = "<!-- parameters: written by `make docs` from kilnwork.server.jobs.parameter_reference -->"
END = "<!-- end of parameters -->"


class Outcome(StrEnum):
    """Effect of a parameter.

    `DONE`: the parameter has its documented effect; `WARNED`: it is accepted but has no effect on
    how the job runs, and the response has a warning that names it.
    """

    DONE = "done"
    WARNED = "warning"


class Parameter(NamedTuple):
    """One row of the table. `names`: the parameters that the row describes, synonyms or of the same
    kind. `means`: a short description. `default`: behaviour without them.
    """

    names: tuple[str, ...]
    means: str
    default: str
    outcome: Outcome = Outcome.DONE


def _one(
    names: str, means: str, default: str = "", *, outcome: Outcome = Outcome.DONE
) -> Parameter:
    return Parameter(tuple(names.split()), means, default, outcome)


TABLE = (
    _one(
        "mapper",
        "`calculator`, `identity`, or a function `package.module:name` that workers can import",
        "`calculator`",
    ),
    _one(
        "command",
        "a program and its arguments instead, as in a shell (none is involved), or as a JSON array",
    ),
    _one("batchRecords", "a function gets lists of up to so many records", "one record"),
    _one(
        "reducer",
        "makes the result of all results: `identity`, or a function",
        "they stay as they are",
    ),
    _one("format", "`jsonl`, `text`, `csv`, `json`", "`jsonl`"),
    _one("blank", "`skip` or `record`: what a blank record is", "`skip`"),
    _one("maxLineBytes", "longest record", "16777216"),
    _one("gzip", "whether the file is compressed", "looks at it"),
    _one("delimiter", "of CSV; a warning with other formats", "`,`"),
    _one("itemsPerPart", "records of a part", "100000"),
    _one("bytesPerPart", "bytes of a part, whichever comes first", "none"),
    _one("maxParts", "parts are made larger rather than more", "10000"),
    _one("parallelism", "parts that run at once", "as there are slots"),
    _one("badRecords", "`report`, or `fail`: the first bad one fails its part", "`report`"),
    _one("maxFailedRecords", "more bad ones fail the job", "any number"),
    _one("maxFailedPercent", "more bad ones of a hundred fail the job", "any number"),
    _one("maxAttempts", "tries of a part; losses of workers do not count", "3"),
    _one(
        "maxCrashes",
        "so many parts that fail in a row before any succeeds end the job; 0: never",
        "5",
    ),
    _one("timeoutSeconds", "of an attempt at a part", "none"),
    _one("name", "for people", "none"),
    _one("cluster clusterName", "the TaskCluster", "`default`"),
    _one("priority", "higher goes first", "0"),
    _one("suspend", "begin paused", "false"),
    _one("ttlSecondsAfterFinished", "then the job and its files are deleted", "7 days"),
    _one("spec", "all of it as one JSON object; the others win over what is in it"),
    _one(
        "file",
        "take a file of `/files` instead of a body; the body, if there is one, is the `spec`",
    ),
    _one(
        "placement",
        "kept with the job; its parts run on its TaskCluster all the same",
        "none",
        outcome=Outcome.WARNED,
    ),
    _one(
        "aci gpu gpuQuantity",
        "as aksjobscheduler had them: the first two are kept as `placement`",
        outcome=Outcome.WARNED,
    ),
    _one(
        "batch",
        "as aksjobscheduler had it: `batch=1` is refused with 422",
        outcome=Outcome.WARNED,
    ),
)


def table() -> str:
    """Return the table of parameters as Markdown, between its markers."""
    lines = [BEGIN, "| parameter | means | default | outcome |", "|---|---|---|---|"]
    for one in TABLE:
        names = ", ".join(f"`{name}`" for name in one.names)
        lines.append(f"| {names} | {one.means} | {one.default} | {one.outcome} |")
    return "\n".join([*lines, END])


def written(page: str) -> str:
    """Return the text of a page with its table of parameters replaced by the current one."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{table()}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text()))
