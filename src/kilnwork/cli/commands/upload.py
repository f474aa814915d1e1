"""`kiln upload`: a file becomes a job, mapped in parallel, with one ordered result."""

import sys
from typing import Any

import click
import msgspec

from kilnwork.api import filejobs, kinds
from kilnwork.api import task as api_task
from kilnwork.cli import (
    directory_type,
    downloads,
    errors,
    exits,
    file_job_progress,
    file_jobs,
    mappers,
    options,
    render,
    session,
    shell_completion,
    uploads,
    wait_notice,
)
from kilnwork.kit import ids

ONE_REQUEST_BYTES = 8 << 20
"""A file up to this size is sent with the job itself, and again as a whole if need be."""


class _WithProgram(click.Command):
    """What follows `--` is a program of its own, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        if "--" in args:
            at = args.index("--")
            args, words = args[:at], args[at + 1 :]
            if not words:
                ctx.fail("a program is expected after --")
        ctx.meta[_PROGRAM] = tuple(words)
        ctx.allow_extra_args = True  # to say more of them than click does
        left = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            ctx.fail(f"one FILE is uploaded, so what is {left[0]!r}? A program comes after --")
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ARG…]"]


_PROGRAM = "kilnwork.program"


@click.command(cls=_WithProgram)
@click.argument("file", metavar="FILE|-", shell_complete=shell_completion.files)
@options.target
@click.option("--mapper", metavar="MAPPER", help="What is done to records, see above.")
@click.option("--command", "program", metavar="TEXT", help="The same as a program after --.")
@click.option(
    "--batch", type=click.IntRange(1, 1_000_000), help="A function gets lists of so many."
)
@click.option("--reducer", metavar="MAPPER", help="Gets the merged results; default keeps them.")
@click.option("--reducer-command", metavar="TEXT", help="The same as a program.")
@click.option(
    "--working-dir", type=directory_type.Directory(exists=True), help="Workers get this directory."
)
@click.option(
    "--format",
    "form",
    type=click.Choice([each.value for each in filejobs.Format], case_sensitive=False),
    help="What a record is; default by the name: .csv, .tsv, .txt and .log (text), else jsonl.",
)
@click.option("--delimiter", metavar="CHARACTER", help="Of CSV; default a comma.")
@click.option(
    "--blank",
    type=click.Choice([each.value for each in filejobs.Blank]),
    default="skip",
    show_default=True,
    help="What a blank line is.",
)
@click.option(
    "--items-per-part",
    type=click.IntRange(min=1),
    default=filejobs.DEFAULT_ITEMS_PER_PART,
    show_default=True,
    help="Lines of a part.",
)
@click.option("--bytes-per-part", type=click.IntRange(min=1), help="A part ends here as well.")
@click.option("--max-line-bytes", type=click.IntRange(1024, 1 << 30),
              default=filejobs.DEFAULT_LINE_BYTES, show_default=True,
              help="A longer line is refused.")  # fmt: skip
@click.option("--parallelism", type=click.IntRange(1, 100_000), help="Parts that run at once.")
@click.option("--retries", type=click.IntRange(0, 999), default=2, show_default=True,
              help="Tries of a part after the first one failed.")  # fmt: skip
@click.option("--timeout", type=options.DURATION, help="How long a part may run; default no limit.")
@click.option(
    "--bad-records",
    type=click.Choice([each.value for each in filejobs.BadRecords]),
    default="report",
    show_default=True,
    help="What a bad record does: it is listed, or its part fails.",
)
@click.option("--max-failed", metavar="N|N%", help="More bad records than this fail the job.")
@click.option(
    "--cluster",
    default="default",
    show_default=True,
    help="TaskCluster to run on.",
    shell_complete=shell_completion.of_kind(kinds.TASK_CLUSTERS),
)
@click.option("--name", default="", help="A name to find it by; need not be unique.")
@click.option("--priority", type=click.IntRange(-1_000_000, 1_000_000), default=0,
              show_default=True, help="Higher runs first.")  # fmt: skip
@click.option("--ttl", type=options.DURATION, help="Delete it all so long after its end.")
@click.option("--paused", is_flag=True, help="Start no part before `kiln resume`.")
@click.option("--key", metavar="KEY", help="The same key again makes no second job.")
@click.option("--resume", metavar="UPLOAD", help="Go on with an upload that broke off.")
@click.option("--watch", is_flag=True, help="Show progress, and end as the job ends.")
@click.option("-o", "--output", metavar="RESULT", help="Write the result there (-: to standard"
              " output); implies --watch.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what the job would be, and make nothing.")
@click.pass_context
def command(ctx: click.Context, /, file: str, **given: Any) -> int:
    """Upload a file, map its records in parallel, get one ordered result.

    \b
    kiln upload work.jsonl --mapper calculator --watch -o result.jsonl
    kiln upload work.jsonl --mapper score.py:score --items-per-part 1000
    kiln upload access.log --watch -o hosts.txt -- cut -d ' ' -f 1
    zcat big.jsonl.gz | kiln upload - --mapper mypackage.clean:row --batch 500

    MAPPER is calculator (the sample), identity, package.module:function that workers can import,
    or path/to/file.py:function, which is sent along. A function gets one record and returns one, a
    JSON value; None drops it. A program gets the records of a part on standard input, a line each,
    and prints results, a line each.

    The file is stored as it comes and taken apart into parts of whole records; gzip is unpacked.
    Results are in the order of the records, however the parts ran. A bad record is listed by
    `kiln results ID --errors`, and the job goes on.

    Prints the job's id. Ctrl-C during the upload says how to go on with it; afterwards it leaves
    the job running. With --watch the command ends with 6 if the job fails.
    """
    downloads.check_target(given["output"], source=None if file == "-" else file)
    program = ctx.meta[_PROGRAM]
    if given["program"] and program:
        raise click.UsageError("--command and a program after -- exclude each other")
    mapper = mappers.parse(
        given["mapper"], given["program"] or program, batch=given["batch"], of="mapper"
    )
    reducer = None
    if given["reducer"] or given["reducer_command"]:
        reducer = mappers.parse(
            given["reducer"], given["reducer_command"] or (), batch=None, of="reducer"
        )
    spec = _spec(file, given)
    if file == "-" and sys.stdin.isatty():
        click.echo("reading standard input, to its end: Ctrl-D", err=True)
    source = uploads.Source(file)
    if (
        given["form"] is None
        and spec["input"].format is filejobs.Format.JSONL
        and source.is_array()
    ):
        hint = "seems to be one JSON array, but is read as lines: --format json reads its elements"
        click.echo(f"{file} {hint}", err=True)
    try:
        return session.run(lambda s: _upload(s, source, (mapper, reducer), spec, given))
    finally:
        source.close()


def _spec(file: str, given: dict[str, Any]) -> dict[str, Any]:
    """All of the job but its mapper; raises `errors.Unusable` for what cannot be."""
    records, percent = file_jobs.parse_tolerance(given["max_failed"])
    name = file.lower().removesuffix(".gz")
    form = given["form"] or next((f for end, f in _BY_NAME.items() if name.endswith(end)), "jsonl")
    delimiter = given["delimiter"] or ("\t" if name.endswith(".tsv") else ",")
    delimiter = {"\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise errors.Unusable(f"--delimiter {delimiter!r}: one character, or \\t for a tab")
    if "/" in given["name"] or not given["name"].isprintable():
        raise errors.Unusable(f"--name {given['name']!r}: no slash and no control characters")
    return {
        "name": given["name"],
        "cluster_name": given["cluster"],
        "input": filejobs.InputSpec(
            format=filejobs.Format(form),
            blank=filejobs.Blank(given["blank"]),
            max_line_bytes=given["max_line_bytes"],
            delimiter=delimiter,
        ),
        "items_per_part": given["items_per_part"],
        "bytes_per_part": given["bytes_per_part"],
        "parallelism": given["parallelism"],
        "bad_records": filejobs.BadRecords(given["bad_records"]),
        "max_failed_records": records,
        "max_failed_percent": percent,
        "retry": filejobs.PartRetry(max_attempts=given["retries"] + 1),
        "timeouts": api_task.Timeouts(running_seconds=given["timeout"] or None),
        "priority": given["priority"],
        "suspend": given["paused"],
        "ttl_seconds_after_finished": None if given["ttl"] is None else int(given["ttl"]),
    }


_BY_NAME = {".csv": "csv", ".tsv": "csv", ".txt": "text", ".log": "text"}


async def _upload(
    s: session.Session,
    source: uploads.Source,
    wanted: tuple[mappers.Wanted, mappers.Wanted | None],
    rest: dict[str, Any],
    given: dict[str, Any],
) -> int:
    mapper, reducer = wanted
    if given["dry_run"]:
        spec = filejobs.FileJobSpec(
            mapper=mapper.mapper,
            reducer=None if reducer is None else reducer.mapper,
            **_only_set(rest),
        )
        click.echo(render.document(msgspec.to_builtins(spec), None), nl=False)
        return exits.Exit.OK
    several = [each for each in wanted if each is not None]
    await mappers.check_importable(s, several, working_dir=given["working_dir"])
    sent = await mappers.shipped(s, several, working_dir=given["working_dir"])
    spec = filejobs.FileJobSpec(
        mapper=sent[0], reducer=sent[1] if reducer is not None else None, **_only_set(rest)
    )
    made = await _make(s, source, spec, given)
    click.echo(made["id"], err=given["output"] == downloads.STDOUT)
    if given["watch"] or given["output"]:
        await file_job_progress.follow(s, made["id"], output=given["output"])
    else:
        click.echo(
            f"{file_jobs.many(file_jobs.lines(made), 'record')} in "
            f"{file_jobs.many(made.get('parts', 0), 'part')}; "
            f"`kiln wait {made['id']}` waits for their results",
            err=True,
        )
    return exits.Exit.OK


def _only_set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


async def _make(
    s: session.Session,
    source: uploads.Source,
    spec: filejobs.FileJobSpec,
    given: dict[str, Any],
) -> file_jobs.Job:
    query = {**file_jobs.scope(s), "spec": _encoded(spec)}
    key = given["key"] or ids.new_uid()
    small = source.size is not None and source.size <= ONE_REQUEST_BYTES
    if small and not given["resume"]:
        return await _post(s, query, key, source.read(ONE_REQUEST_BYTES), source.name)
    upload = uploads.Upload(s, source, known=given["resume"])
    try:
        query["file"] = await upload.run()
    except BaseException:
        if upload.id and upload.sent:
            click.echo(f"{upload.sent:,} bytes were sent: {source.going_on(upload.id)}", err=True)
        raise
    made = await _post(s, query, key, b"", source.name)
    await upload.forget()  # the job has it under a name of its own
    return made


def _encoded(spec: filejobs.FileJobSpec) -> str:
    """As JSON. Raises `errors.Unusable` for words that are no text."""
    try:
        return msgspec.json.encode(spec).decode()
    except UnicodeEncodeError as error:
        raise errors.Unusable(
            f"{error.object!r} is not UTF-8, as what is in a job must be"
        ) from error


async def _post(
    s: session.Session, query: dict[str, str], key: str, body: bytes, name: str
) -> file_jobs.Job:
    """Make the job; again while the server is away, which its key makes safe."""
    headers = {"Idempotency-Key": key}
    async with wait_notice.waiting(f"the server takes {name} apart") as waiting:
        return await file_jobs.patiently(
            s,
            waiting.say,
            lambda: s.exchange(
                "POST",
                file_jobs.path(),
                query=query,
                body=body,
                headers={**headers, "Accept": "application/json"},
                timeout_s=None,
            ),
        )
