"""A mixed load on a `kiln up` that is killed and paused, and the comparison of all results.

`run` runs one seed: writers and watchers of the API, declared Tasks, a program of Python futures,
file jobs. Used by `tests/faults`. Uses documented interfaces only.
"""
