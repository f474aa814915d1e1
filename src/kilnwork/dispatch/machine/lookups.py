"""Which calls exist already: found by id, by a driver's key, by their parent's run and key. Pure.

Used by `submissions`. Whatever is known is found and not made again; JSON arguments are compared,
pickled ones cannot be, since equal values may pickle differently.
"""

import msgspec

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    admission,
    children,
    completion,
    dependencies,
    inputs,
    instructions,
    lifecycle,
    memory,
    records,
)

_S = api_task.State
_R = reasons.Reason
_encode = msgspec.json.Encoder(order="sorted").encode


def key_of(call: calls.CallItem, template: records.Template) -> str | None:
    """By what a child or a keyed call is found again."""
    if call.key is not None:
        return f"={call.key}"
    if call.parent is None:
        return None
    return f"{template.function}#{call.ordinal}"


def find_or_make(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    item: inputs.SubmitCalls,
    now: inputs.Moment,
) -> None:
    """A child, a call with a key, or one that was sent before."""
    known = item.known.get(call.number)
    if known is not None and known.value.task == call.task:
        admission.report_known(mem, submitter, call.number, known.value)
        return
    if call.parent is not None:
        _submit_child(mem, submitter, template, call, item, now)
        return
    key = key_of(call, template)
    if key is None:
        admission.admit(mem, admission.new(mem, submitter, template, call, now), item.values, now)
        return
    task = mem.keys.get((submitter.namespace, key))
    known = _known_of(task) if task is not None else known
    if known is None:
        task = admission.new(mem, submitter, template, call, now)
        task.child_key = key
        mem.keys[submitter.namespace, key] = task
        admission.admit(mem, task, item.values, now)
    elif _same(known, template, call):
        _found(mem, submitter, call, task, known.value)
    else:
        _refuse_key(mem, submitter, call)


def _known_of(task: records.Task) -> inputs.Known:
    asked_by = 0 if task.parent is None else task.parent.attempt
    return inputs.Known(dependencies.value(task), task.arguments, task.spec, asked_by)


def _same(known: inputs.Known, template: records.Template, call: calls.CallItem) -> bool:
    """The same function, and the same arguments as far as they can be compared."""
    other = known.spec.call
    if other is None or other.function != template.function or known.arguments is None:
        return False
    ours, theirs = call.arguments, known.arguments
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


def _found(
    mem: memory.Memory,
    submitter: records.Submitter,
    call: calls.CallItem,
    task: records.Task | None,
    known: calls.Value,
) -> None:
    mem.send(instructions.Found(submitter.link, call.number, known.task))
    if task is not None:
        admission.subscribe(mem, task, submitter, call.number)
    else:
        admission.report_known(mem, submitter, call.number, known)


def _refuse_key(mem: memory.Memory, submitter: records.Submitter, call: calls.CallItem) -> None:
    message = f"key {call.key!r} already names a call of another function or other arguments"
    refusal = calls.CallResult(call.number, _S.FAILED, _R.KEY_TAKEN, message)
    admission.tell(mem, submitter, refusal)


def _submit_child(
    mem: memory.Memory,
    submitter: records.Submitter,
    template: records.Template,
    call: calls.CallItem,
    item: inputs.SubmitCalls,
    now: inputs.Moment,
) -> None:
    """A child is found by its parent's run and its key, or made."""
    parent = _parent(mem, submitter, call)
    key = key_of(call, template)
    if parent is None or key is None or call.parent is None:
        message = f"attempt {call.parent} is over, or is being stopped"
        refusal = calls.CallResult(call.number, _S.KILLED, _R.PARENT_KILLED, message)
        admission.tell(mem, submitter, refusal)
        return
    lifecycle.start(mem, parent, now, at=now.wall)
    family = children.family_of(parent)
    task = family.members.get(key)
    known = _known_of(task) if task is not None else item.known.get(call.number)
    if known is not None and _same(known, template, call):
        if task is not None and task.parent != call.parent:
            task.parent = call.parent
            mem.mark(task)
        _found(mem, submitter, call, task, known.value)
        return
    if known is not None and known.asked_by == parent.attempt:
        _refuse_key(mem, submitter, call)
        return
    if known is not None:
        children.replace(mem, parent, task, key, now)
    child = admission.new(mem, submitter, template, call, now)
    child.source = parent.source
    children.adopt(family, child, call.parent, child_key=key)
    family.total += 1
    completion.publish_parent(mem, family)
    admission.admit(mem, child, item.values, now)


def _parent(
    mem: memory.Memory, submitter: records.Submitter, call: calls.CallItem
) -> records.Task | None:
    """The task whose newest attempt runs in this slot and asks for a child."""
    ref = call.parent
    task = None if ref is None else mem.tasks.get(ref.task)
    if task is None or ref is None or submitter.slot is None:
        return None
    if task.slot is not submitter.slot or task.attempt != ref.attempt or task.run != ref.run:
        return None
    return task if task.intent is records.Intent.NONE else None
