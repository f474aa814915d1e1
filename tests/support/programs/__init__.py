"""Random programs of the public Python API, what must come out of them, and faults meanwhile.

`generate` makes a program from a seed, `expect` evaluates it in plain Python, `driver` runs it as a
process of its own, `run` kills and pauses parts of it and compares. Used by `tests/faults`.
"""
