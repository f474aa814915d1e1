"""SyncSets run in the test's own process: their flow, on files of this machine, without a server.

`run_set(ss, data={"trades": "tests/trades"})` computes the digest and the shards of the data as a
pond does, makes the data available to functions in the same way, and runs the flow as
`inline_flows.run_flow` does. No workers are started, and no source of a pond is read: data is
passed to `run_set`, or is `inline` in the SyncSet.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import meta, sync_set, sync_set_env
from kilnwork.data import errors as data_errors
from kilnwork.data import local_blobs
from kilnwork.data.pond import manifest, origins, output_source, shards
from kilnwork.jobs.flows import run_types
from kilnwork.kit import snapshot_path_validation
from kilnwork.sdk import snapshots as sdk_snapshots
from kilnwork.sdk import sync_sets
from kilnwork.testing import inline_flows

_OUTPUTS = ".outputs"
"""Directory to which tasks write; no snapshot has such a name."""


def run_set(
    declared: sync_sets.SyncSet | meta.JsonObject,
    *,
    data: Mapping[str, str | os.PathLike[str]] | None = None,
    params: Mapping[str, Any] | None = None,
    outputs: str | os.PathLike[str] | None = None,
) -> run_types.FlowRunView:
    """Run the flow of a SyncSet, or of its manifest, to its end in this process, and return its
    view.

    `data`: a directory or a file for each snapshot that is not `inline`. `params`: values that
    override those in the flow's `params`. `outputs`: a directory; if the flow succeeds, the files
    of each output are copied to a directory in it that has the name of the output.

    The view has `phase`, `value`, `reason`, `message` and `steps`. Raises InvalidFlow, BadOption.
    """
    functions: Mapping[str, Callable[..., Any]] = {}
    if isinstance(declared, sync_sets.SyncSet):
        body, functions = declared.declared()
    else:
        body = dict(declared)
    spec = _spec(body)
    with tempfile.TemporaryDirectory(prefix="kiln-set-") as directory, _data(Path(directory)):
        found = {
            one.name: _pinned(spec, one, (data or {}).get(one.name), Path(directory))
            for one in spec.data.snapshots
        }
        unknown = (data or {}).keys() - found.keys()
        if unknown:
            known = ", ".join(found) or "none"
            raise inline_flows.InvalidFlow(
                f"data: {min(unknown)!r} is no snapshot of the set; there are: {known}"
            )
        view, attempts = inline_flows.run(spec.flow, data=found, params=params, functions=functions)
        if outputs is not None and view.phase is run_types.FlowPhase.SUCCEEDED:
            for one in spec.data.outputs:
                _keep(one, attempts.get(one.step, ()), Path(directory), Path(outputs))
        return view


def _keep(output: sync_set.Output, attempts: Sequence[str], directory: Path, outputs: Path) -> None:
    """Copy the files of an output from the directories of its attempts, as a pond would keep them.

    Raises InvalidFlow.
    """
    if not attempts:
        return
    written = directory / _OUTPUTS
    source = output_source.OutputSource(output.name, written, attempts)
    try:
        found = source.list(origins.Selection(glob=output.glob))
        for one in found:
            place = outputs / output.name / one.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with source.open(one.path, offset=0, stamp="") as content, place.open("wb") as file:
                for piece in content.pieces():
                    file.write(piece)
    except data_errors.PondError as error:
        raise inline_flows.InvalidFlow(f"output {output.name}: {error}") from error


def _spec(body: Mapping[str, Any]) -> sync_set.SyncSetSpec:
    try:
        return msgspec.convert(body["spec"], sync_set.SyncSetSpec)
    except (KeyError, msgspec.ValidationError) as error:
        raise inline_flows.InvalidFlow(f"this is no SyncSet: {error}") from error


@contextlib.contextmanager
def _data(directory: Path) -> Iterator[None]:
    """Set environment variables within the block, so that functions find snapshots in a directory
    and write their outputs below it.
    """
    written = directory / _OUTPUTS
    written.mkdir()
    given = {
        sdk_snapshots.DATA_VARIABLE: str(directory),
        sync_set_env.OUTPUTS: str(written),
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _pinned(
    spec: sync_set.SyncSetSpec,
    snapshot: sync_set.Snapshot,
    given: str | os.PathLike[str] | None,
    directory: Path,
) -> run_types.SnapshotRef:
    """Place the files of a snapshot below `directory`, and return the reference to it for the flow.

    The reference pins the content: it has the digest and, for a sharded snapshot, the shards.
    """
    place = directory / snapshot.name
    if given is not None:
        _link(snapshot.name, Path(given).absolute(), place)
    elif snapshot.source.inline is not None:
        _write(snapshot.source.inline, place)
    else:
        raise inline_flows.InvalidFlow(
            f"data: snapshot {snapshot.name} comes from a pond, and there is none here: give its "
            f"directory, data={{{snapshot.name!r}: …}}"
        )
    found = manifest.Manifest(_files(place))
    planned: list[Any] | None = None
    if snapshot.shard is not None:
        scheme = shards.Scheme(
            by=snapshot.shard.by,
            key=snapshot.shard.key,
            patterns=snapshot.shard.patterns,
            unit=snapshot.shard.unit,
        )
        count = _count(spec, snapshot.shard)
        planned = [
            msgspec.to_builtins(one)
            for one in shards.plan(found, scheme, count, snapshot=snapshot.name)
        ]
    return run_types.SnapshotRef(
        name=snapshot.name, digest=found.digest, bytes=found.size, shards=planned
    )


def _count(spec: sync_set.SyncSetSpec, shard: sync_set.Shard) -> int | None:
    if shard.group is None:
        return shard.count
    return next(group.count for group in spec.resources.groups if group.name == shard.group)


def _link(name: str, given: Path, place: Path) -> None:
    if given.is_dir():
        place.symlink_to(given, target_is_directory=True)
    elif given.is_file():
        place.mkdir()
        (place / given.name).symlink_to(given)
    else:
        raise inline_flows.InvalidFlow(f"data: snapshot {name}: there is no {given}")


def _write(files: Mapping[str, str], place: Path) -> None:
    place.mkdir()
    for path, text in files.items():
        problem = snapshot_path_validation.problem(path)
        if problem:
            raise inline_flows.InvalidFlow(f"data: inline file {path!r} {problem}")
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _files(place: Path) -> Iterator[manifest.File]:
    for path in place.rglob("*") if not place.is_symlink() else place.resolve().rglob("*"):
        if path.is_file():
            found = path.stat()
            root = place.resolve() if place.is_symlink() else place
            yield manifest.File(
                path=path.relative_to(root).as_posix(),
                size=found.st_size,
                mode=manifest.mode_of(found.st_mode),
                digest=_digest(path),
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return local_blobs.text(hashlib.file_digest(file, "sha256").digest())
