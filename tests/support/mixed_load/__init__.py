"""Everything that a `kiln up` does, at once, while it is killed and paused; then all is compared.

`run` runs one seed: writers and watchers of the API, declared Tasks, a program of Python futures,
file jobs. Used by `tests/faults`. Knows the documented interfaces only.
"""
