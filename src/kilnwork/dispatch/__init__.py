"""The dispatcher: owns the journal of tasks and matches tasks with slots.

- `machine` decides: pure, all state in memory, every change of state through one table.
- `journal` stores: the port, the rows, SQLite, and a store in memory for drivers that keep nothing.
- `hub` carries out: links to workers and drivers, commits, and the methods that others call.

Used by controllers and server (`hub.hub.Hub`, `model`), by jobs, and as a process of its own by
`kiln.start()` (`home`). Knows nothing of Kubernetes objects and never calls an executor:
instructions go out, observations come in.
"""
