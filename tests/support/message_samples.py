"""One sample of each message that drivers and slots exchange with a dispatcher."""

from kilnwork.api import attempts, calls, task
from kilnwork.channel import messages
from kilnwork.kit import ids

TASK = ids.TaskId(bytes(16))
REF = attempts.AttemptRef(TASK, 1, 2)
SPEC = task.TaskSpec(call=task.Call(function="sums:add"))
PAYLOAD = attempts.Payload(attempts.JSON, b"[[1],{}]")
BLOB = attempts.Payload(attempts.PICKLE, b"", b"d" * 32, 70_000, (b"e" * 32,))
VALUE = calls.Value(TASK, task.State.SUCCESS, "Succeeded", "", PAYLOAD)
ITEM = calls.CallItem(1, TASK, 1, PAYLOAD)
CHILD = calls.CallItem(2, TASK, 1, BLOB, (TASK,), "n", "k", 3, REF)
END = calls.CallEnd(REF, attempts.Ending.SUCCEEDED, "Succeeded", "", PAYLOAD, 1.0, 0.5)
DELEGATION = calls.CallEnd(
    REF, attempts.Ending.FAILED, "Raised", "no", BLOB, 1.0, 0.5, may_retry=False, delegate=TASK
)

OF_SUBMITTERS: list[messages.Template | messages.Submit | messages.Watch | messages.Cancel] = [
    messages.Template(1, SPEC),
    messages.Submit((ITEM, CHILD)),
    messages.Submit((ITEM,), again=True),
    messages.Watch((calls.Watched(3, TASK),)),
    messages.Cancel((TASK,), recursive=False),
]
FROM_DRIVER: list[messages.FromDriver] = [
    messages.DriverHello(1, b"s" * 16, "secret", "ns", 0),
    *OF_SUBMITTERS,
    messages.Prune(8, 3600.0, keep=5, free_bytes=1 << 30, keyed=True, dry_run=True),
]
OF_SLOTS: list[messages.FromSlot] = [
    messages.Started(1, REF, 12.5),
    messages.CallsEnded(2, (END, DELEGATION)),
    messages.Returned((REF,)),
    messages.Waiting(REF, (TASK,), in_place=True),
    messages.Resumed(REF),
    messages.Yielded(REF, 0, PAYLOAD),
    messages.Log(REF, 0, b"\x00hello"),
    messages.Progress(REF, None, "half"),
]
FROM_SLOT: list[messages.FromSlot] = [
    messages.SlotHello(1, b"s" * 16, "secret", 0, (REF,)),
    *OF_SUBMITTERS,
    *OF_SLOTS,
]
TO_SUBMITTERS: list[
    messages.Attached
    | messages.Refused
    | messages.Accepted
    | messages.FoundCall
    | messages.Results
    | messages.Streamed
] = [
    messages.Attached(1, (), "/blobs/ns", "ns", "default"),
    messages.Refused("Credential", "no", retry=False),
    messages.Accepted(7),
    messages.FoundCall(1, TASK),
    messages.Results((calls.CallResult(1, task.State.FAILED, "Raised", "no", BLOB),)),
    messages.Streamed(1, 0, PAYLOAD),
]
TO_DRIVER: list[messages.ToDriver] = [*TO_SUBMITTERS, messages.Pruned(8, 3, 1024)]
TO_SLOT: list[messages.ToSlot] = [
    *TO_SUBMITTERS,
    messages.Template(1, SPEC),
    messages.Calls((calls.CallRun(REF, 1, PAYLOAD, "n", (VALUE,), in_place=True),)),
    messages.TakeBack(3),
    messages.StopCall(REF, "Killed"),
    messages.Acknowledged(9),
]
