"""The dispatcher: owns the journal of tasks and assigns tasks to slots.

- `machine` decides: no I/O, all state in memory, every state change through one table.
- `journal` stores: the interface, the rows, SQLite, and a store in memory for volatile drivers.
- `hub` performs I/O: links to workers and drivers, commits, and the methods that others call.

The path of one task: a driver's message reaches `hub.submitters`, or a Task object
`hub.hub.Hub.submit`. `hub.commits` gives the input to `machine`, which makes a record, queues the
task and reserves an attempt in a slot. The changes go to `journal` as one batch, and when that is
on disk `hub.delivery` sends the attempt to the slot. The report of its end takes the same path.
Each package documents its part.

Used by controllers and server (`hub.hub.Hub`, `model`), by jobs, by the command line, and as a
process of its own by `kiln.start()` (`process`). Knows nothing of Kubernetes objects and never
calls an executor: it gives out instructions and takes in observations.
"""
