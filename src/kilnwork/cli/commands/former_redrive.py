"""`kiln redrive`: the former name of `kiln retry --failed` of a file job, with its options."""

import click

from kilnwork.cli import downloads, file_job_progress, file_jobs, options, session, shell_completion


@click.command()
@click.argument("job", metavar="ID|NAME", shell_complete=shell_completion.file_jobs)
@options.target
@click.option("--watch", is_flag=True, help="Show progress until the job finishes.")
@click.option(
    "-o",
    "--output",
    metavar="RESULT",
    help="File to write the result to, - for standard output; implies --watch.",
)
def command(job: str, watch: bool, output: str | None) -> None:  # noqa: FBT001
    """Run the failed or cancelled parts of a file job again; succeeded parts keep their results.

    \b
    kiln redrive invoices --watch -o result.jsonl

    This is the former name of `kiln retry --failed`. The job keeps its id, input and mapper. With
    --watch, exits with 6 if the job fails again.
    """
    downloads.check_target(output)

    async def work(s: session.Session) -> None:
        found = await file_jobs.post_action(s, job, "retry")
        click.echo(file_jobs.sentence(found), err=True)
        if watch or output:
            await file_job_progress.follow(s, found["id"], output=output)

    session.run(work)
