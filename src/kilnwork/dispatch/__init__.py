"""The dispatcher: owns the journal of tasks and matches tasks with slots.

- `machine` decides: pure, all state in memory, every change of state through one table.
- `journal` stores: the port, the rows, SQLite, and a store in memory for drivers that keep nothing.
- `hub` carries out: links to workers and drivers, commits, and the methods that others call.

One task: a message of a driver reaches `hub.submitters`, or a Task object `hub.hub.Hub.submit`;
`hub.commits` hands the input to `machine`, which makes a record, queues it and reserves an attempt
in a slot; what has changed goes to `journal` as one batch, and when that is on disk `hub.delivery`
sends the attempt to the slot. Its end comes back the same way. Each package describes its part.

Used by controllers and server (`hub.hub.Hub`, `model`), by jobs, and as a process of its own by
`kiln.start()` (`process`). Knows nothing of Kubernetes objects and never calls an executor:
instructions go out, observations come in.
"""
