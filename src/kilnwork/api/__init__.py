"""Our kinds and the facts about *one* object: shape, defaults, validation, conditions, names.

Used by every package above. No I/O, no clock, no client: a function here looks at one object and
returns a fact. `meta` and `resource` know any Kubernetes object; one file per kind of ours.
"""
