"""Our kinds and the facts about *one* object: shape, defaults, validation, conditions, names.

Used by every package above. No I/O, no clock, no client: a function here takes one object and
returns a fact about it. `meta` and `api_resources` work for any Kubernetes object; each kind of
ours has a module.
"""
