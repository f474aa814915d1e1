"""What users program with: task functions, futures, sessions.

`local` starts a home on this machine, `remote` connects to one that runs. The public names are
those of `kilnwork` itself; besides it only the worker's slots import from here.
"""
