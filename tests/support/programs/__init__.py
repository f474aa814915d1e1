"""Random programs of the public Python API, their expected results, and faults during their runs.

`generator` makes a program from a seed, `oracle` evaluates it in plain Python, `driver` runs it as
a separate process, `run` kills and pauses parts of it and compares. Used by `tests/faults`.
"""
