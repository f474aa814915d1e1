"""The SDK: task functions, futures, sessions, Jobs and SyncSets for programs.

`local` starts a home on this machine, `remote` connects to a running server; both open a
`driver_session`, which is the `session` of a user's process. A `session` sends calls in batches,
blocks `submit` while too many are not accepted, and sends unaccepted calls again on a new
connection. The public names are exported by `kilnwork` itself. Other packages import from this one
too: the worker's slots, `files`, `jobs.work`, `kilnwork.testing` and the command line.
"""
