"""`kiln upload`: create a file job from a file; it maps the records in parallel."""

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
    output_formats,
    session,
    shell_completion,
    uploads,
    wait_notice,
)
from kilnwork.kit import ids

ONE_REQUEST_BYTES = 8 << 20
"""A file up to this size is sent with the job itself, and again as a whole if need be."""


class _WithProgram(click.Command):
    """Command that takes all arguments after `--` as a program, even if they look like options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        if "--" in args:
            at = args.index("--")
            args, words = args[:at], args[at + 1 :]
            if not words:
                ctx.fail("a program is expected after --")
        ctx.meta[_PROGRAM] = tuple(words)
        ctx.allow_extra_args = True  # for a better error than click's
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
@click.option("--mapper", metavar="MAPPER", help="Function that maps records, see above.")
@click.option(
    "--command",
    "program",
    metavar="COMMAND",
    help="Program that maps records, as one shell-quoted text, instead of the arguments after --.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Pass lists of up to N records to the function, which returns as many results.",
)
@click.option(
    "--reducer",
    metavar="MAPPER",
    help="Function that gets the merged results and produces the final one; default: none.",
)
@click.option(
    "--reducer-command", metavar="COMMAND", help="Program that reduces the merged results."
)
@click.option(
    "--working-dir",
    type=directory_type.Directory(exists=True),
    help="Directory to upload; workers run in it and import from it. Paths listed in"
    " .kilnignore are left out.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([each.value for each in filejobs.Format], case_sensitive=False),
    help="Record format: one JSON value per line (jsonl), one line (text), one row below a"
    " header (csv), or one element of an array (json). Default: csv for .csv and .tsv,"
    " text for .txt and .log, otherwise jsonl.",
)
@click.option(
    "--delimiter", metavar="CHARACTER", help="Delimiter of CSV; default: comma, for .tsv a tab."
)
@click.option(
    "--blank",
    type=click.Choice([each.value for each in filejobs.Blank]),
    default="skip",
    show_default=True,
    help="Whether blank lines are skipped or are records.",
)
@click.option(
    "--items-per-part",
    type=click.IntRange(min=1),
    default=filejobs.DEFAULT_ITEMS_PER_PART,
    show_default=True,
    metavar="N",
    help="Maximum number of records per part.",
)
@click.option(
    "--bytes-per-part",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum size of a part in bytes.",
)
@click.option(
    "--max-line-bytes",
    type=click.IntRange(1024, 1 << 30),
    default=filejobs.DEFAULT_LINE_BYTES,
    show_default=True,
    metavar="N",
    help="Maximum length of a line in bytes; a longer line is an error.",
)
@click.option(
    "--parallelism",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of parts that run at once; default: the number of slots.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 999),
    default=2,
    show_default=True,
    metavar="N",
    help="Number of further attempts of a part after the first one fails; lost"
    " workers do not count.",
)
@click.option(
    "--timeout", type=options.DURATION, help="Maximum run time of a part; default: no limit."
)
@click.option(
    "--bad-records",
    type=click.Choice([each.value for each in filejobs.BadRecords]),
    default="report",
    show_default=True,
    help="List bad records in the report, or fail their part.",
)
@click.option(
    "--max-failed",
    metavar="N|N%",
    help="Fail the job at more bad records than this; default: no limit.",
)
@click.option(
    "--cluster",
    default="default",
    show_default=True,
    metavar="NAME",
    help="TaskCluster to run on.",
    shell_complete=shell_completion.of_kind(kinds.TASK_CLUSTERS),
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the file job, without slashes; need not be unique.",
)
@click.option(
    "--priority",
    type=click.IntRange(-1_000_000, 1_000_000),
    default=0,
    show_default=True,
    metavar="N",
    help="Priority of the job, higher first.",
)
@click.option(
    "--ttl",
    type=options.DURATION,
    help="Delete the job, its input and its result this long after it finishes; default: keep"
    " them.",
)
@click.option("--paused", is_flag=True, help="Create the job suspended; `kiln resume` starts it.")
@click.option(
    "--key",
    metavar="KEY",
    help="Idempotency key: uploading again with the same key creates no second job.",
)
@click.option("--resume", metavar="UPLOAD", help="Id of an interrupted upload to continue.")
@click.option("--watch", is_flag=True, help="Show progress until the job finishes.")
@click.option(
    "-o",
    "--output",
    metavar="RESULT",
    help="File to write the result to, - for standard output; implies --watch.",
)
@click.option("--dry-run", is_flag=True, help="Print the job without creating it.")
@click.pass_context
def command(ctx: click.Context, /, file: str, **given: Any) -> int:
    """Upload a file, map its records in parallel, and produce one ordered result.

    \b
    kiln upload work.jsonl --mapper calculator --watch -o result.jsonl
    kiln upload work.jsonl --mapper score.py:score --items-per-part 1000
    kiln upload access.log --watch -o hosts.txt -- cut -d ' ' -f 1
    zcat big.jsonl.gz | kiln upload - --mapper mypackage.clean:row --batch 500

    MAPPER is `calculator` (a sample), `identity`, package.module:function, which workers must be
    able to import, or path/to/file.py:function, which is uploaded. A function gets one record and
    returns one JSON value; None drops the record. A PROGRAM gets the records of a part on standard
    input, one per line, and prints results, one per line.

    The file is split into parts of whole records; gzip files are decompressed. Results have the
    order of the records. A bad record does not stop the job; `kiln results ID --errors` lists them.

    Prints the id of the file job. Ctrl-C during the upload prints how to resume it; after the
    upload it leaves the job running. With --watch, exits with 6 if the job fails.
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
    source = uploads.UploadSource(file)
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
    """Return the spec of the file job without its mapper.

    Raises `errors.InvalidInput` for contradictory options.
    """
    records, percent = file_jobs.parse_tolerance(given["max_failed"])
    name = file.lower().removesuffix(".gz")
    form = given["form"] or next((f for end, f in _BY_NAME.items() if name.endswith(end)), "jsonl")
    delimiter = given["delimiter"] or ("\t" if name.endswith(".tsv") else ",")
    delimiter = {"\\t": "\t"}.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise errors.InvalidInput(f"--delimiter {delimiter!r}: one character, or \\t for a tab")
    if "/" in given["name"] or not given["name"].isprintable():
        raise errors.InvalidInput(f"--name {given['name']!r}: no slash and no control characters")
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
    source: uploads.UploadSource,
    wanted: tuple[mappers.RequestedMapper, mappers.RequestedMapper | None],
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
        click.echo(output_formats.document(msgspec.to_builtins(spec), None), nl=False)
        return exits.Exit.OK
    several = [each for each in wanted if each is not None]
    await mappers.check_importable(s, several, working_dir=given["working_dir"])
    sent = await mappers.upload_mappers(s, several, working_dir=given["working_dir"])
    spec = filejobs.FileJobSpec(
        mapper=sent[0], reducer=sent[1] if reducer is not None else None, **_only_set(rest)
    )
    made = await _make(s, source, spec, given)
    click.echo(made["id"], err=given["output"] == downloads.STDOUT)
    if given["watch"] or given["output"]:
        await file_job_progress.follow(s, made["id"], output=given["output"])
    else:
        click.echo(
            f"{file_jobs.counted(file_jobs.lines(made), 'record')} in "
            f"{file_jobs.counted(made.get('parts', 0), 'part')}; "
            f"`kiln wait {made['id']}` waits for their results",
            err=True,
        )
    return exits.Exit.OK


def _only_set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


async def _make(
    s: session.Session,
    source: uploads.UploadSource,
    spec: filejobs.FileJobSpec,
    given: dict[str, Any],
) -> file_jobs.Job:
    query = {**file_jobs.namespace_query(s), "spec": _encoded(spec)}
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
    await upload.forget()  # the job has its own copy
    return made


def _encoded(spec: filejobs.FileJobSpec) -> str:
    """Return the spec of the file job as JSON.

    Raises `errors.InvalidInput` for words that are not valid Unicode.
    """
    try:
        return msgspec.json.encode(spec).decode()
    except UnicodeEncodeError as error:
        raise errors.InvalidInput(
            f"{error.object!r} is not UTF-8, as what is in a job must be"
        ) from error


async def _post(
    s: session.Session, query: dict[str, str], key: str, body: bytes, name: str
) -> file_jobs.Job:
    """Create the file job; repeat the request while the server does not respond.

    The key of the request makes it safe to repeat.
    """
    headers = {"Idempotency-Key": key}
    async with wait_notice.waiting(f"the server takes {name} apart") as waiting:
        return await file_jobs.retry_while_away(
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
