"""`kiln deploy`: create or update the JobConfigs that a Python module declares."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kilnwork.api import kinds, meta, names
from kilnwork.cli import (
    deploy_diff,
    errors,
    exits,
    job_modules,
    options,
    output_formats,
    packed_code,
    session,
    shell_completion,
    wait_notice,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors
from kilnwork.sdk import job_manifests


@click.command()
@click.argument("module", metavar="MODULE|FILE", shell_complete=shell_completion.files)
@options.target
@click.option("--dry-run", is_flag=True, help="Show what would change without changing it.")
@click.option(
    "--prune",
    is_flag=True,
    help="Delete JobConfigs that were deployed from this module and are no longer in it, with"
    " their Jobs.",
)
@click.option("--force", is_flag=True, help="Overwrite fields that other clients have changed.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label to set on all JobConfigs; repeatable.",
)
@click.option(
    "--working-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory to upload with the code; functions run in it and import from it.",
)
@options.output("name", "json", "yaml")
def command(
    module: str,
    labels: tuple[str, ...],
    working_dir: Path | None,
    form: str | None,
    **flags: bool,
) -> int:
    """Create or update a JobConfig for each @kiln.job function of a Python module.

    \b
    kiln deploy jobs/reports.py
    kiln deploy company.reports --prune
    kiln deploy jobs/reports.py --dry-run -o yaml > reports.yaml

    Prints created, configured or unchanged for each JobConfig, and the fields that change. Fields
    that other clients have set and the module does not declare, such as a disabled schedule, are
    kept.

    A FILE is uploaded; if it belongs to a package, the whole package is. The code is kept while a
    JobConfig or Job refers to it. A MODULE, a dotted name, is not uploaded: workers must be able to
    import it. With --dry-run and -o json or yaml the JobConfigs are printed without asking a
    server.
    """
    found = job_modules.load_module(
        module,
        labels=dict(map(_label, labels)),
        working_dir=working_dir,
        may_be_empty=flags["prune"],  # the module may have no job left
    )
    if flags["dry_run"] and form in ("json", "yaml"):
        click.echo(output_formats.document(_whole(found.bodies), form), nl=False)
        return exits.Exit.OK
    failed = session.run(lambda s: _Deployment(s, found, flags, form=form).run())
    if failed:
        raise errors.CommandError(f"{failed} of the JobConfigs could not be deployed")
    return exits.Exit.OK


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    problem = names.qualified_problem(key) or names.label_value_problem(value)
    if not equals or problem:
        raise errors.InvalidInput(
            f"--label {text}: write KEY=VALUE{f'; {problem}' if problem else ''}"
        )
    return key, value


def _whole(bodies: Sequence[meta.JsonObject]) -> meta.JsonObject:
    return bodies[0] if len(bodies) == 1 else output_formats.object_list(bodies)


class _Deployment:
    """Deployment of the jobs of one module to a server: one run of `kiln deploy`."""

    def __init__(
        self,
        s: session.Session,
        found: job_modules.DeclaredJobs,
        flags: dict[str, bool],
        *,
        form: str | None,
    ) -> None:
        self._session = s
        self._found = found
        self._dry, self._prune, self._force = flags["dry_run"], flags["prune"], flags["force"]
        self._form = form
        self._namespace = s.one_namespace()
        self._collection = s.path(kinds.JOB_CONFIGS, namespace=self._namespace)

    async def run(self) -> int:
        """Deploy all JobConfigs and return the number of failures."""
        failed, done = 0, []
        async with wait_notice.waiting("deploying") as waiting:
            deployed = await self._deployed()
            if self._found.code is not None and self._found.bodies and not self._dry:
                await packed_code.upload(self._session, self._found.code)
            for body in self._found.bodies:
                name = body["metadata"]["name"]
                waiting.say(f"deploying {name}")
                try:
                    done.append(await self._one(name, body, deployed.pop(name, None)))
                except kube_errors.ApiError as error:
                    if isinstance(error, kube_errors.Unavailable):
                        raise
                    failed += 1
                    click.echo(f"error: {name}: {self._reason(error)}", err=True)
            for name in sorted(deployed):
                failed += await self._stale(name, deployed[name])
        if self._form in ("json", "yaml"):
            click.echo(output_formats.document(_whole(done), self._form), nl=False)
        return failed

    async def _deployed(self) -> dict[str, meta.JsonObject]:
        """Return the JobConfigs that were deployed from the module earlier, by name."""
        label = job_modules.deployed_from(self._found.module)
        selector = f"{job_manifests.DEPLOYED_FROM}={label}"
        items = await self._session.items(self._collection, query={"labelSelector": selector})
        return {item["metadata"]["name"]: item for item in items}

    async def _one(
        self, name: str, body: meta.JsonObject, live: meta.JsonObject | None
    ) -> meta.JsonObject:
        """Apply one JobConfig of the module and return the resulting object."""
        if live is None:
            live = await self._read(name)
        wanted = await self._apply(name, body, dry=True)
        changed = None if live is None else deploy_diff.changes(live, wanted)
        result = wanted
        if changed != [] and not self._dry:
            result = await self._apply(name, body, dry=False)
        self._say(name, "created" if changed is None else "configured" if changed else "unchanged")
        if self._form is None:
            for change in changed or ():
                click.echo(f"  {change}")
        return result

    async def _read(self, name: str) -> meta.JsonObject | None:
        try:
            return await self._session.ask("GET", f"{self._collection}/{session.quoted(name)}")
        except kube_errors.NotFound:
            return None

    async def _apply(self, name: str, body: meta.JsonObject, *, dry: bool) -> meta.JsonObject:
        query = {"fieldManager": deploy_diff.FIELD_MANAGER, "fieldValidation": "Strict"}
        if self._force:
            query["force"] = "true"
        if dry:
            query["dryRun"] = "All"
        return await self._session.ask(
            "PATCH",
            f"{self._collection}/{session.quoted(name)}",
            query=query,
            body=deploy_diff.with_defaults(body),
            content_type=http_types.APPLY,
        )

    async def _stale(self, name: str, live: meta.JsonObject) -> int:
        """Delete a JobConfig that the module no longer declares; without --prune only report it.

        Return 1 if it could not be deleted, otherwise 0.
        """
        if not self._prune:
            click.echo(
                f"{name} was deployed from {self._found.module}, which no longer declares it: "
                "--prune deletes it, and its Jobs",
                err=True,
            )
            return 0
        if not self._dry:
            body: dict[str, Any] = {"preconditions": {"uid": live["metadata"]["uid"]}}
            path = f"{self._collection}/{session.quoted(name)}"
            try:
                await self._session.ask("DELETE", path, body=body)
            except kube_errors.NotFound:
                pass
            except kube_errors.ApiError as error:
                click.echo(f"error: {name}: {error}", err=True)
                return 1
        self._say(name, "pruned")
        return 0

    def _say(self, name: str, verb: str) -> None:
        line = output_formats.full_name(kinds.JOB_CONFIGS, name)
        if self._form is None:
            click.echo(f"{line} {verb}{' (dry run)' if self._dry else ''}")
        elif self._form == "name" and verb != "pruned":
            click.echo(line)

    def _reason(self, error: kube_errors.ApiError) -> str:
        if isinstance(error, kube_errors.Conflict) and not self._force:
            return f"{error}: --force takes the fields over"
        return str(error)
