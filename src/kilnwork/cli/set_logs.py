"""Output of the steps of a SyncSet, printed with the step and its shard before each line.

Used by `kiln logs syncset/NAME`.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import click

from kilnwork.cli import errors, job_logs, session, sync_set_requests, task_logs
from kilnwork.kube import errors as kube_errors

MAX_SHOWN = 20
"""Maximum number of tasks that are shown, failed ones first."""

_INDEX = re.compile(r"\[[^\]]*\]")
"""Index of a round or a shard in the key of an instance."""


def _path(s: session.Session, name: str) -> str:
    namespace = session.quoted(s.one_namespace())
    return f"/v1/namespaces/{namespace}/syncsets/{session.quoted(name)}/steps"


async def list_instances(
    s: session.Session, name: str, **wanted: str
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the instances of steps of a SyncSet in the order of their start.

    `wanted`: query parameters step, state, generation.
    """
    query = {key: value for key, value in wanted.items() if value}
    while True:
        page = await s.ask("GET", _path(s, name), query={**query, "limit": str(session.PAGE)})
        for item in page["items"]:
            yield item
        if "after" not in page:
            return
        query["after"] = str(page["after"])


def _name_steps(of: Mapping[str, Any], step: str | None) -> str:
    """Return a text that names the existing steps if `step` does not exist, otherwise "".

    `step`: a step, or an instance of one.
    """
    steps = ((of.get("status") or {}).get("flow") or {}).get("steps") or {}
    if step is None or not steps or _INDEX.sub("", step) in steps:
        return ""
    return f" No step has the path {step}; there are {', '.join(sorted(steps))}."


async def show(
    s: session.Session, name: str, query: Mapping[str, str], *, step: str | None
) -> None:
    """Print the output of one instance, one step or all steps of a SyncSet, up to MAX_SHOWN tasks.

    `step`: a step's path (`price`), or an instance (`price[17]`). Raises `errors.Missing`, and
    `errors.InvalidInput` if `query` asks to follow the output.
    """
    if "follow" in query:
        raise errors.InvalidInput(
            "logs of a SyncSet cannot be followed: leave out -f, or name a task"
        )
    query = dict(query)
    generation = query.pop("run", "")  # for a SyncSet, --run is the generation
    plain = "" if step is None else step.partition("[")[0] if "." not in step else ""
    found = [
        item
        async for item in list_instances(s, name, step=plain, generation=generation)
        if item.get("task") and (step is None or step in (item["key"], item["step"]))
    ]
    if not found:
        where = await sync_set_requests.get(s, name)
        what = "nothing was printed yet" if step is None else f"step {step} has printed nothing"
        click.echo(
            f"{what}: {sync_set_requests.sentence(where)}{_name_steps(where, step)}", err=True
        )
        return
    if len(found) == 1 and step is not None:
        await task_logs.of_task(s, str(found[0]["task"]), query)
        return
    found.sort(key=lambda item: item["state"] != "Failed")
    for item in found[:MAX_SHOWN]:
        lines = job_logs.Prefixed(f"[{item['key']}] ")
        copy = task_logs.Copy(s, str(item["task"]), query, write=lines.write)
        with contextlib.suppress(kube_errors.NotFound):
            await copy.run()
        lines.close()
    if len(found) > MAX_SHOWN:
        another = f"`kiln logs syncset/{name} --step '{found[-1]['key']}'` shows another"
        click.echo(f"these are {MAX_SHOWN} of {len(found):,} tasks: {another}", err=True)
