"""`kiln apply`: create objects from manifests, or update them to match."""

from collections.abc import Sequence
from typing import NamedTuple

import click

from kilnwork.api import api_resources, field_support, kind_field_effects, meta
from kilnwork.api import kinds as api_kinds
from kilnwork.cli import (
    errors,
    manifests,
    merge_patch,
    object_dry_run,
    options,
    output_formats,
    session,
    shell_completion,
    validation,
    wait_notice,
)
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors

_STRICT = "Strict"


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="YAML or JSON file, directory of such files, or - for standard input; repeatable.",
    shell_complete=shell_completion.files,
)
@options.target
@click.option(
    "--dry-run", is_flag=True, help="Let the server validate the objects without storing them."
)
@click.option(
    "--validate",
    type=bool,
    default=True,
    metavar="true|false",
    help="With false, skip all checks before sending, and let the server drop unknown fields.",
)
@options.output("name", "json", "yaml")
def command(files: tuple[str, ...], form: str | None, **flags: bool) -> None:
    """Create the objects in files, or update them to match the files.

    \b
    kiln apply -f examples/01-counter/cluster.yaml
    kiln apply -f - < task.yaml

    Prints created, configured or unchanged for each object. Nothing is applied if a file cannot be
    read or an object of a kilnwork kind is invalid. If the server rejects some objects, for example
    because of unknown fields, the others are still applied and the exit code is 1. `kiln apply` and
    `kubectl apply` can be used on the same object.
    """
    query = {
        "fieldValidation": _STRICT if flags["validate"] else "Ignore",
        "fieldManager": "kiln",
        **({"dryRun": "All"} if flags["dry_run"] else {}),
    }
    found = list(manifests.read(files))  # before the event loop: Ctrl-C must end a read of stdin
    if not found:
        raise errors.InvalidInput(f"{', '.join(files)}: no objects in there")
    failed = session.run(lambda s: _run(s, found, query=query, form=form))
    if failed:
        raise errors.CommandError(f"{failed} of the objects could not be applied")


async def _run(
    s: session.Session,
    found: Sequence[manifests.Manifest],
    *,
    query: dict[str, str],
    form: str | None,
) -> int:
    """Apply all manifests and return the number of failures."""
    if query["fieldValidation"] == _STRICT:
        await _check(s, found)
    return await _apply(s, found, query=query, form=form)


async def _check(s: session.Session, found: Sequence[manifests.Manifest]) -> None:
    """Check the objects of all manifests before any is sent.

    Raises CommandError if the server would refuse at least one object.
    """
    refused = 0
    async with wait_notice.waiting("checking") as waiting:
        for manifest in found:
            waiting.say(f"checking {manifest.place}")
            if (why := await _find_refusal(s, manifest.body)) is not None:
                refused += 1
                click.echo(f"error: {manifest.place}: {why}", err=True)
    if refused:
        raise errors.CommandError(
            f"nothing is applied: {refused} of the objects are not valid (--validate=false lets "
            "the server alone decide)"
        )


async def _find_refusal(s: session.Session, given: meta.JsonObject) -> str | None:
    """Return the reason why the server would refuse the object, or None if it would accept it.

    Errors while reading the stored object are ignored: sending the object reports them again.
    """
    if (given["apiVersion"], given["kind"]) not in _OUR_KINDS:
        return None  # its kind may be defined in the same file
    try:
        one = await _object(s, given)
        live = await s.ask("GET", one.path)
    except kube_errors.NotFound:
        return validation.find_refusal(one.kind, merge_patch.annotated(one.body))
    except errors.InvalidInput as error:
        return str(error)
    except kube_errors.Unavailable:
        raise
    except errors.SERVER_ERRORS:
        return None
    change = merge_patch.patch(live, one.body)
    return validation.find_refusal_of_patch(one.kind, live, change) if change else None


_OUR_KINDS = frozenset((kind.api_version, kind.kind) for kind in api_kinds.OURS)


async def _apply(
    s: session.Session,
    found: Sequence[manifests.Manifest],
    *,
    query: dict[str, str],
    form: str | None,
) -> int:
    """Create or update the objects one by one and return the number of failures."""
    done: list[meta.JsonObject] = []
    failed = 0
    async with wait_notice.waiting("applying") as waiting:
        for manifest in found:
            waiting.say(f"applying {manifest.place}")
            try:
                done.append(await _one(s, manifest, query=query, form=form))
            except (kube_errors.ApiError, errors.CommandError) as error:
                if isinstance(error, kube_errors.Unavailable):
                    raise
                failed += 1
                click.echo(f"error: {manifest.place}: {error}", err=True)
    if form in ("json", "yaml") and done:
        whole = done[0] if len(done) == 1 else output_formats.object_list(done)
        click.echo(output_formats.document(whole, form), nl=False)
    return failed


class _Object(NamedTuple):
    """Object of a manifest with its namespace set, and its URL path."""

    kind: api_resources.Resource
    namespace: str
    body: meta.JsonObject
    path: str


async def _object(s: session.Session, body: meta.JsonObject) -> _Object:
    served = await s.kinds.of(body["apiVersion"], body["kind"])
    namespace = _namespace(s, served, body)
    name = body["metadata"].get("name")
    if not name:
        raise errors.InvalidInput("metadata.name is missing: apply must know which object it means")
    if served.namespaced:
        body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
    return _Object(served, namespace, body, s.path(served, str(name), namespace=namespace))


async def _one(
    s: session.Session, manifest: manifests.Manifest, *, query: dict[str, str], form: str | None
) -> meta.JsonObject:
    served, namespace, body, path = await _object(s, manifest.body)
    collection = s.path(served, namespace=namespace)
    if object_dry_run.is_object_task(served, body):
        await object_dry_run.check(s, body, namespace)
    verb, result = await _create_or_patch(s, path, collection, body=body, query=query)
    if verb != "unchanged" and served in api_kinds.OURS:  # servers of other clusters cannot warn
        for found in kind_field_effects.findings(served.kind, body):
            s.warn(field_support.describe_finding(found))
    line = output_formats.full_name(served, str(body["metadata"]["name"]))
    if form is None:
        suffix = " (dry run)" if "dryRun" in query else ""
        click.echo(f"{line} {verb}{suffix}")
    elif form == "name":
        click.echo(line)
    return result


def _namespace(s: session.Session, served: api_resources.Resource, body: meta.JsonObject) -> str:
    own = body["metadata"].get("namespace")
    if not served.namespaced or not own:
        return s.one_namespace()
    if s.target.namespace and own != s.target.namespace:
        raise errors.InvalidInput(f"its namespace is {own}, not {s.target.namespace} as -n says")
    return str(own)


async def _create_or_patch(
    s: session.Session,
    path: str,
    collection: str,
    *,
    body: meta.JsonObject,
    query: dict[str, str],
) -> tuple[str, meta.JsonObject]:
    try:
        live = await s.ask("GET", path)
    except kube_errors.NotFound:
        wanted = merge_patch.annotated(body)
        try:
            return "created", await s.ask("POST", collection, query=query, body=wanted)
        except kube_errors.AlreadyExists:
            live = await s.ask("GET", path)
    change = merge_patch.patch(live, body)
    if not change:
        return "unchanged", live
    result = await s.ask(
        "PATCH", path, query=query, body=change, content_type=http_types.MERGE_PATCH
    )
    same = live["metadata"].get("resourceVersion") == result["metadata"].get("resourceVersion")
    return "unchanged" if same else "configured", result
