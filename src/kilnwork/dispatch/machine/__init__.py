"""The state machine of tasks: inputs in, instructions out. No clock, no disk, no socket.

The path of one task: `submissions` (calls of drivers and tasks), `children` (of commands) or
`machine` (Task objects) take it in; `lifecycle` puts it into the `task_queue` of its cluster;
`assignment` reserves a slot of a worker for it; `lifecycle` notes its start; `call_reports` or
`machine` hear how the attempt ended; `completion` decides whether another attempt follows
(`retries`) or the task is over, and tells parents and dependents (`dependencies`).

All parts share one `memory` of `records`, and change states by its `move` alone, which looks into
the table of `transitions`.
"""
