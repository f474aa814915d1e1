"""Drivers and slots attach, name templates, submit calls by the batch, watch and cancel. Pure.

Used by `machine`; `lookups` knows which calls exist already.
"""

from kilnwork.api import calls, reasons
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.machine import (
    admission,
    completion,
    inputs,
    instructions,
    lifecycle,
    memory,
    records,
)
from kilnwork.dispatch.machine import lookups as call_lookups
from kilnwork.kit import ids

_R = reasons.Reason

DEFAULT_CLUSTER = "default"
"""Where tasks of a driver run unless they say otherwise."""


MAX_TEMPLATES = 65_536
"""Of one link: several times what a driver needs whose unconfirmed calls have one each."""


def attach(mem: memory.Memory, item: inputs.Attach) -> None:
    """A driver is here; an older link of the same session is over."""
    for link, other in list(mem.submitters.items()):
        if other.session == item.session and other.slot is None:
            message = "the same session has connected again"
            mem.send(instructions.CloseLink(link, "replaced", message))
            detach(mem, link)
    mem.submitters[item.link] = records.Submitter(item.session, item.namespace, item.link)
    mem.send(instructions.AttachPeer(item.link, item.namespace, DEFAULT_CLUSTER))


def detach(mem: memory.Memory, link: int) -> None:
    """A driver's link is closed: what it has submitted goes on."""
    submitter = mem.submitters.pop(link, None)
    if submitter is not None:
        submitter.link = 0
        mem.unconfirmed.pop(submitter, None)


def define(mem: memory.Memory, item: inputs.Define) -> None:
    """A template gets a number of this link."""
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    if item.spec.call is None:
        message = f"template {item.number} has no call"
        mem.send(instructions.CloseLink(item.link, "template", message))
        return
    if len(submitter.templates) >= MAX_TEMPLATES:
        message = f"more than {MAX_TEMPLATES} templates: forget those that are not used"
        mem.send(instructions.CloseLink(item.link, "template", message))
        return
    submitter.templates[item.number] = mem.template(submitter.namespace, item.spec)


def undefine(mem: memory.Memory, item: inputs.Undefine) -> None:
    """Numbers of this link that mean nothing any more; tasks keep their templates."""
    submitter = mem.submitters.get(item.link)
    if submitter is not None:
        for number in item.numbers:
            submitter.templates.pop(number, None)


def lookups(
    mem: memory.Memory,
    item: inputs.SubmitCalls | inputs.WatchTasks | inputs.CallsEnded,
    *,
    again: bool,
) -> inputs.Lookups | None:
    """What only the journal can tell of an input, None when nothing."""
    if isinstance(item, inputs.CallsEnded):
        return _lookups_of_ends(mem, item)
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return None
    asked = inputs.Lookups(submitter.namespace, [], [], [], set())
    if isinstance(item, inputs.WatchTasks):
        asked.values = {w.task for w in item.items if w.task not in mem.tasks}
        return asked if asked.values else None
    for call in item.items:
        parent = call.parent
        if (
            again
            or call.needs
            or call.key is not None
            or (parent is not None and parent.attempt > 1)
        ):
            _look_up(mem, submitter, call, asked, again=again)
    if asked.values:
        asked.values.difference_update([call.task for call in item.items])
    if asked.values or asked.calls or asked.children or asked.keys:
        return asked
    return None


def _lookups_of_ends(mem: memory.Memory, item: inputs.CallsEnded) -> inputs.Lookups | None:
    names = {
        end.delegate
        for end in item.ends
        if end.delegate is not None and end.delegate not in mem.tasks
    }
    slot = mem.slot_links.get(item.link)
    if not names or slot is None:
        return None
    return inputs.Lookups(slot.worker.cluster.key[0], [], [], [], names)


def _look_up(
    mem: memory.Memory,
    submitter: records.Submitter,
    call: calls.CallItem,
    asked: inputs.Lookups,
    *,
    again: bool,
) -> None:
    asked.values.update(need for need in call.needs if need not in mem.tasks)
    if call.task in mem.tasks:
        return
    if again:
        asked.calls.append((call.number, call.task))
    template = submitter.templates.get(call.template)
    if template is None:
        return
    key, parent = call_lookups.key_of(call, template), call.parent
    if parent is not None and key is not None:
        task = mem.tasks.get(parent.task)
        family = None if task is None else task.family
        if family is not None and family.total and key not in family.members:
            asked.children.append((call.number, parent.task, parent.run, key))
    elif key is not None and (submitter.namespace, key) not in mem.keys:
        asked.keys.append((call.number, key))


def submit(mem: memory.Memory, item: inputs.SubmitCalls, now: inputs.Moment) -> None:
    """Take in calls, in order; those that exist already are found."""
    submitter = mem.submitters.get(item.link)
    if submitter is None or not item.items:
        return
    template = None
    for call in item.items:
        template = submitter.templates.get(call.template)
        if template is None:
            message = f"call {call.number} names template {call.template}, which is not defined"
            mem.send(instructions.CloseLink(item.link, "template", message))
            return
        if call.task in mem.tasks:
            admission.subscribe(mem, mem.tasks[call.task], submitter, call.number)
        elif call.parent is None and call.key is None and not item.known:
            admission.admit(
                mem, admission.new(mem, submitter, template, call, now), item.values, now
            )
        else:
            call_lookups.find_or_make(mem, submitter, template, call, item, now)
            if call.key is not None or (call.parent is not None and call.parent.attempt > 1):
                mem.batch.awaited.add(submitter.link)  # its id is known only when it is accepted
        submitter.accepted = call.number
    if template is not None:
        _accept(mem, submitter, template.cluster)


def _accept(mem: memory.Memory, submitter: records.Submitter, cluster: records.Cluster) -> None:
    """Confirm what came, unless so much is queued that more had better wait."""
    if len(cluster.queue) > mem.max_backlog:
        mem.unconfirmed[submitter] = cluster
    else:
        mem.batch.accepted[submitter.link] = submitter.accepted


def confirm(mem: memory.Memory) -> None:
    """Confirm what was withheld, where the queue is shorter now."""
    for submitter, cluster in list(mem.unconfirmed.items()):
        if len(cluster.queue) <= mem.max_backlog:
            del mem.unconfirmed[submitter]
            if submitter.link:
                mem.batch.accepted[submitter.link] = submitter.accepted


def watch(mem: memory.Memory, item: inputs.WatchTasks) -> None:
    """A submitter wants results."""
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    for watched in item.items:
        task = mem.tasks.get(watched.task)
        known = item.values.get(watched.task)
        if task is not None:
            admission.subscribe(mem, task, submitter, watched.number)
        elif known is not None:
            admission.report_known(mem, submitter, watched.number, known)
        else:
            admission.report_unknown(mem, submitter, watched.number)


def cancel(mem: memory.Memory, item: inputs.CancelTasks, now: inputs.Moment) -> None:
    """A submitter wants tasks of its namespace killed."""
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return
    for name in item.tasks:
        task = mem.tasks.get(name)
        if task is None or task.namespace != submitter.namespace:
            continue
        if item.recursive:
            completion.kill(mem, task, now, reason=_R.KILLED, message="cancelled")
        else:
            completion.stop(
                mem, task, now,
                intent=records.Intent.KILL, reason=_R.KILLED, message="cancelled",
            )  # fmt: skip


def rerun(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    """Admit a new run of a spawned task that is over, or raise `RunRefused` if it runs already.

    It keeps parent and driver's key for show and for who asks again; it is no child of the parent's
    run any more, whose counts stay unchanged.
    """
    current = mem.tasks.get(item.task)
    if current is not None and not current.state.final:
        raise errors.RunRefused(f"run {current.run} of it has been started already")
    is_call = item.arguments is not None and item.spec.call is not None
    task = _call_again(mem, item) if is_call else _command_again(mem, item)
    task.run, task.parent = item.run, item.parent
    if item.key is not None:
        task.child_key = item.key
        mem.index_key(task)
    if is_call:
        task.created = task.pending_since = now.wall
        admission.admit(mem, task, item.values, now)
    else:
        lifecycle.admit(mem, task, now)


def _call_again(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    template = mem.template(item.namespace, item.spec)
    return records.Task(
        next(mem.task_rows),
        item.task,
        item.run,
        item.namespace,
        item.name or "",
        template.cluster,
        False,
        template.spec,
        template=template,
        arguments=item.arguments,
        needs=item.needs,
        source=item.source,
    )


def _command_again(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    submission = model.Submission(
        task=item.task,
        namespace=item.namespace,
        name=item.name or ids.task_text(item.task),
        spec=item.spec,
        inputs=item.inputs,
        declared=False,
    )
    cluster = mem.cluster(item.namespace, item.spec.cluster_name)
    return records.of_submission(next(mem.task_rows), submission, cluster)
