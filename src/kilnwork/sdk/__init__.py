"""What users program with: task functions, futures, sessions.

`local` starts a home on this machine, `remote` connects to one that runs; both open a `driver`, the
`session` of a user's process. `session` gathers calls, blocks `submit` while too many are not
accepted, and says again on a new connection what was not. The public names are
those of `kilnwork` itself; besides it only the worker's slots import from here.
"""
