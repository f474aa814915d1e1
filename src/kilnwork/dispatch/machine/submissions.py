"""Accepts calls that submitters submit in batches. Does no I/O and reads no clock.

Used by `machine`. A call that is already known is found instead of made again: by id, by a key, or
by its parent's run and key. JSON arguments are compared; pickled arguments cannot be, since equal
values may pickle differently.
"""

import msgspec

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    child_spawning,
    dependencies,
    end_notifications,
    families,
    inputs,
    instructions,
    memory,
    records,
    submitters,
    task_ends,
    task_starts,
)
from kilnwork.kit import clock, ids

_S = api_task.State
_R = reasons.Reason
_encode = msgspec.json.Encoder(order="sorted").encode


def lookups(
    mem: memory.Memory,
    item: inputs.SubmitCalls | inputs.WatchTasks | inputs.CallsEnded,
    *,
    again: bool,
) -> inputs.Lookups | None:
    """Return the values that an input needs from the journal, or None if it needs none."""
    if isinstance(item, inputs.CallsEnded):
        return _lookups_of_ends(mem, item)
    submitter = mem.submitters.get(item.link)
    if submitter is None:
        return None
    request = inputs.Lookups(submitter.namespace, [], [], [], set(), [])
    if isinstance(item, inputs.WatchTasks):
        request.values = {w.task for w in item.items if w.task not in mem.tasks}
        return request if request.values else None
    for call in item.items:
        parent = call.parent
        if (
            again
            or call.needs
            or call.key is not None
            or call.cache is not None
            or (parent is not None and _may_have_had_it(parent))
        ):
            _look_up(mem, submitter, call, request, again=again)
    if request.values:
        # Calls that other calls of the same message need are not in the journal yet.
        request.values.difference_update([call.task for call in item.items])
    if request.values or request.calls or request.children or request.keys or request.cached:
        return request
    return None


def _may_have_had_it(parent: attempts.AttemptRef) -> bool:
    """Return whether the attempt may find children of an earlier attempt or run."""
    return parent.attempt > 1 or parent.run > 1


def _lookups_of_ends(mem: memory.Memory, item: inputs.CallsEnded) -> inputs.Lookups | None:
    names = {
        end.delegate
        for end in item.ends
        if end.delegate is not None and end.delegate not in mem.tasks
    }
    submitter = mem.submitters.get(item.link)
    if not names or submitter is None:
        return None
    return inputs.Lookups(submitter.namespace, [], [], [], names)


def _look_up(
    mem: memory.Memory,
    submitter: records.Submitter,
    call: calls.CallItem,
    request: inputs.Lookups,
    *,
    again: bool,
) -> None:
    request.values.update(need for need in call.needs if need not in mem.tasks)
    if call.task in mem.tasks:
        return
    # New ids are random, so only a call that was sent before can be in the journal.
    if again:
        request.calls.append((call.number, call.task))
    template = submitter.templates.get(call.template)
    if template is None:
        return
    # A key covers only the arguments, not the results of tasks that are sent along.
    if call.cache is not None and not call.needs:
        request.cached.append((call.number, call.cache.key, call.cache.seconds))
    key, parent = _key_of(call, template), call.parent
    if parent is not None and key is not None:
        task = mem.tasks.get(parent.task)
        family = None if task is None else task.family
        if family is not None and family.total and key not in family.members:
            request.children.append((call.number, parent.task, parent.run, key))
    elif key is not None and (submitter.namespace, key) not in mem.keys:
        request.keys.append((call.number, key))


def submit(mem: memory.Memory, item: inputs.SubmitCalls, now: inputs.Moment) -> None:
    """Accept the calls of a submission in order; find those that exist already."""
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
        # The call was sent again after a reconnect: it was accepted, but the confirmation was lost.
        if call.task in mem.tasks:
            submitters.subscribe(mem, mem.tasks[call.task], submitter, call.number)
        elif call.parent is None and call.key is None and not item.known:
            _begin(mem, _new(mem, submitter, template, call, now), call, item, now)
        else:
            _find_or_create(mem, submitter, template, call, item, now)
            if call.key is not None or (call.parent is not None and _may_have_had_it(call.parent)):
                # The call's id is known only when the call is accepted.
                mem.batch.awaited.add(submitter.link)
        # The calls are in order, so the highest number confirms all of them.
        submitter.accepted = call.number
    if template is not None:
        _accept(mem, submitter, template.cluster)


def _accept(mem: memory.Memory, submitter: records.Submitter, cluster: records.Cluster) -> None:
    """Acknowledge the calls of a submitter, unless the queue is so long that it should wait."""
    if len(cluster.queue) > mem.max_backlog:
        mem.unconfirmed[submitter] = cluster
    else:
        mem.batch.accepted[submitter.link] = submitter.accepted


def confirm(mem: memory.Memory) -> None:
    """Send withheld acknowledgements to submitters whose queue is short enough now."""
    for submitter, cluster in list(mem.unconfirmed.items()):
        if len(cluster.queue) <= mem.max_backlog:
            del mem.unconfirmed[submitter]
            # The links of slots end in `workers.cut_off`, which leaves `unconfirmed` alone.
            if submitter.link:
                mem.batch.accepted[submitter.link] = submitter.accepted


def _new(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    now: inputs.Moment,
) -> records.Task:
    """Make the record of a new call."""
    wall = now.wall
    return records.Task(
        next(mem.task_rows),
        call.task,
        1,
        submitter.namespace,
        call.name or "",
        template.cluster,
        False,
        template.spec,
        created=wall,
        pending_since=wall,
        template=template,
        arguments=call.arguments,
        needs=call.needs,
        submitter=submitter,
        number=call.number,
        source=submitter.source,
    )


def admit(
    mem: memory.Memory,
    task: records.Task,
    values: inputs.Values,
    now: inputs.Moment,
) -> None:
    """Admit a call, which waits for a slot, or first for tasks that it needs.

    `values`: the ends of needed tasks that are not in memory.
    """
    mem.tasks[task.id] = task
    mem.batch.dirty[task] = None
    template = task.template
    if template is not None and template.timed:
        task_starts.watch_deadlines(mem, task, now)
    if task.needs:
        dependencies.attach(mem, task, values)
        dependencies.ready(mem, (task,), now)
    else:
        task_starts.enqueue(mem, task)


def _begin(
    mem: memory.Memory,
    task: records.Task,
    call: calls.CallItem,
    item: inputs.SubmitCalls,
    now: inputs.Moment,
) -> None:
    """Finish a new call at once if a cached result may be used; otherwise admit it."""
    reused = item.cached.get(call.number)
    if reused is None:
        if call.cache is not None and not call.needs:
            task.cache_key = call.cache.key
        admit(mem, task, item.values, now)
        return
    # It is a task of its own, though it never runs: it has an id, and other tasks may need it.
    mem.tasks[task.id] = task
    mem.batch.dirty[task] = None
    task.result = reused.payload
    ended, of = clock.rfc3339(reused.finished), ids.task_text(reused.task)
    task_ends.finish(
        mem,
        task,
        now,
        state=_S.SUCCESS,
        reason=_R.CACHED,
        message=f"it has the result of task {of}, which ended {ended}",
    )


def _find_or_create(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    item: inputs.SubmitCalls,
    now: inputs.Moment,
) -> None:
    """Find or make a call that may exist: a child, a call with a key, or a call that was sent
    before.
    """
    known = item.known.get(call.number)
    # The call was sent again after its end: it was accepted, but neither that nor the result
    # arrived.
    if known is not None and known.value.task == call.task:
        submitters.report_known(mem, submitter, call.number, known.value)
        return
    if call.parent is not None:
        _submit_child(mem, submitter, template, call, item, now)
        return
    key = _key_of(call, template)
    if key is None:
        _begin(mem, _new(mem, submitter, template, call, now), call, item, now)
        return
    # Memory first: it may have a run that the journal does not have.
    task = mem.keys.get((submitter.namespace, key))
    known = _known_of(task) if task is not None else known
    if known is None:
        task = _new(mem, submitter, template, call, now)
        task.child_key = key
        mem.keys[submitter.namespace, key] = task
        _begin(mem, task, call, item, now)
    elif call.retry_failed and _may_be_retried(mem, known, template, submitter):
        task = _next_run(mem, submitter, template, call, known, now)
        task.child_key = key
        mem.keys[submitter.namespace, key] = task
        _begin(mem, task, call, item, now)
    elif _same(known, template, call):
        _report_found(mem, submitter, call, task, known.value)
    else:
        _refuse_key(mem, submitter, call)


def _key_of(call: calls.CallItem, template: records.Template) -> str | None:
    """Return the key by which a child or a keyed call is found again, or None for any other
    call.
    """
    if call.key is not None:
        return f"={call.key}"
    if call.parent is None:
        return None
    return f"{template.function}#{call.ordinal}"


def _known_of(task: records.Task) -> inputs.StoredCall:
    requested_by = 0 if task.parent is None else task.parent.attempt
    return inputs.StoredCall(
        dependencies.value(task),
        task.arguments,
        task.spec,
        requested_by,
        task.run,
        families.earlier_of(task) if task.state.final else None,
        task.source,
    )


def _stored(mem: memory.Memory, known: inputs.StoredCall | None) -> inputs.StoredCall | None:
    """Return the stored call `known`, corrected if memory has a newer run of it, started by
    hand.
    """
    task = None if known is None else mem.tasks.get(known.value.task)
    if known is None or task is None:
        return known
    return msgspec.structs.replace(_known_of(task), requested_by=known.requested_by)


def _may_be_retried(
    mem: memory.Memory,
    known: inputs.StoredCall,
    template: records.Template,
    submitter: records.Submitter,
) -> bool:
    """Return whether a keyed call failed in another session than that of `submitter`, so that it
    may run again.

    It may run with other arguments and another version of its function. A failure within the
    session is final: a call that is sent twice runs once. A task that is being deleted does not run
    again.
    """
    state = known.value.state
    if not state.final or state is _S.SUCCESS or known.source == submitter.source:
        return False
    if mem.pins.is_retiring(known.value.task):
        return False  # all rows of the task are about to be deleted, also that of a new run
    return known.spec.function_name == template.function


def _next_run(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    known: inputs.StoredCall,
    now: inputs.Moment,
) -> records.Task:
    """Make the next run of a failed call, as requested now.

    It continues with the children of the previous run.
    """
    task = _new(mem, submitter, template, call, now)
    # Not the id that the submitter chose: FoundCall reports the right one.
    task.id, task.run = known.value.task, known.run + 1
    mem.pins.pin((task.id,))
    families.take_over(mem, task, known.earlier)
    mem.send(instructions.FoundCall(submitter.link, call.number, task.id))
    return task


def _same(known: inputs.StoredCall, template: records.Template, call: calls.CallItem) -> bool:
    """Return whether a stored call has the same function (or manifest) and the same arguments.

    Arguments that cannot be compared count as the same.
    """
    if known.spec.function_name != template.function or known.arguments is None:
        return False
    if template.spec.call is None and known.spec.template != template.spec.template:
        return False
    ours, theirs = call.arguments, known.arguments
    # Pickled ones cannot be compared, so the key alone decides.
    if ours.media_type != attempts.JSON or theirs.media_type != attempts.JSON:
        return True
    if ours.digest is not None or theirs.digest is not None:
        return ours.digest == theirs.digest
    return ours.data == theirs.data or _canonical(ours.data) == _canonical(theirs.data)


def _canonical(data: bytes) -> bytes:
    try:
        return _encode(msgspec.json.decode(data))
    except msgspec.MsgspecError:
        return data


def _report_found(
    mem: memory.Memory,
    submitter: records.Submitter,
    call: calls.CallItem,
    task: records.Task | None,
    known: calls.Value,
) -> None:
    mem.send(instructions.FoundCall(submitter.link, call.number, known.task))
    if task is not None:
        submitters.subscribe(mem, task, submitter, call.number)
    else:
        submitters.report_known(mem, submitter, call.number, known)


def _refuse_key(mem: memory.Memory, submitter: records.Submitter, call: calls.CallItem) -> None:
    message = f"key {call.key!r} already names a call of another function or other arguments"
    refusal = calls.CallResult(call.number, _S.FAILED, _R.KEY_TAKEN, message)
    submitters.report(mem, submitter, refusal)


def _submit_child(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    item: inputs.SubmitCalls,
    now: inputs.Moment,
) -> None:
    """Find a child by its parent's run and its key, or make it."""
    parent = _parent(mem, submitter, call)
    key = _key_of(call, template)
    if parent is None or key is None or call.parent is None:
        message = f"attempt {call.parent} is over, or is being stopped"
        refusal = calls.CallResult(call.number, _S.KILLED, _R.PARENT_KILLED, message)
        submitters.report(mem, submitter, refusal)
        return
    task_starts.start(mem, parent, now, at=now.wall)
    family = families.of_run(parent)
    task = family.members.get(key)
    known = _known_of(task) if task is not None else _stored(mem, item.known.get(call.number))
    if known is not None and _same(known, template, call):
        # Before `_report_found`: a call that failed under an earlier run is to run again.
        if inputs.to_be_retried(known.value.state, known.requested_by):
            child = _next_run(mem, submitter, template, call, known, now)
            child.source = parent.source
            families.adopt(family, child, call.parent, child_key=key)
            families.replace_failed(mem, child, family)
            _begin(mem, child, call, item, now)
            return
        if task is not None and task.parent != call.parent:
            task.parent = call.parent
            mem.mark(task)
        _report_found(mem, submitter, call, task or mem.tasks.get(known.value.task), known.value)
        return
    # As in `child_spawning.spawn`: within one attempt a key has one meaning.
    if known is not None and known.requested_by == parent.attempt:
        _refuse_key(mem, submitter, call)
        return
    if known is not None:
        child_spawning.replace(mem, parent, task, key, now)
    child = _new(mem, submitter, template, call, now)
    child.source = parent.source
    families.adopt(family, child, call.parent, child_key=key)
    family.total += 1
    end_notifications.publish_parent(mem, family)
    _begin(mem, child, call, item, now)


def _parent(
    mem: memory.Memory, submitter: records.Submitter, call: calls.CallItem
) -> records.Task | None:
    """Return the task whose newest attempt requests a child, or None if it may not.

    The attempt must run in the slot that submits, or be the Pod that submits, and its stop must not
    have been requested.
    """
    ref = call.parent
    if ref is None:
        return None
    if submitter.slot is None:
        task = mem.attempt_behind(submitter.link, ref)
    else:
        task = mem.tasks.get(ref.task)
        if task is not None and (
            task.slot is not submitter.slot or task.attempt != ref.attempt or task.run != ref.run
        ):
            return None
    return None if task is None or task.intent is not records.Intent.NONE else task
