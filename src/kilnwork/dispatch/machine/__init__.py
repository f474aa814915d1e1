"""The state machine of tasks: inputs in, instructions out. No clock, no disk, no socket.

The path of one call of a driver: `machine` hands the input to `submissions`, which makes a record,
or finds the call that was made before; `task_queue` keeps it until `machine.take`, in which
`assignment` reserves an attempt in a slot. `call_reports` takes in how that ended: a call that just
returned is over there; `completion` decides about all others (`retries`), and `dependencies` passes
the outcome on to those that wait for it; `notifications` hands it to parents and submitters.

A Task object comes in through `machine`, a child that a command spawns through `children`;
`lifecycle` queues them, and notes starts. `workers` and `slots` follow who is connected, `waits`
which attempts wait for others, `reservations` which slots are occupied. `views` shows what memory
knows at this moment.

All parts share one `memory` of `records`. Its `move` and `move_attempt` alone change states, along
the table of `transitions`; an illegal move raises with the last inputs.
"""
