"""The state machine of tasks: inputs in, instructions out. No clock, no disk, no socket.

The path of a driver's call: `machine` hands the input to `submissions`, which makes a record or
finds the call that was made before. `task_queue` keeps the record until `machine.take`, in which
`assignment` reserves an attempt in a slot. `call_reports` handles the report of its end: a call
that simply returned is finished there; `task_ends` decides about all other ends (by `retries`), and
`dependencies` passes the outcome on to the tasks that wait for it. `end_notifications` sends it to
parents and submitters.

A Task object comes in through `machine`, a child that a command spawns through `child_spawning`;
`task_starts` queues tasks and records starts. `workers` and `slot_lifecycle` keep track of
connections, `waits` of attempts that wait for other tasks, `slot_occupancy` of occupied slots.
`views` shows facts that only memory knows.

All parts share one `memory` of `records`. Only its `move` and `move_attempt` change states, along
the table of `transition_table`; an illegal move raises an error that lists the last inputs.
"""
