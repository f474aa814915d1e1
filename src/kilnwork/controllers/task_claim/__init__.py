"""Kind TaskClaim: tasks of `spec.external` for programs that speak nothing but the Kubernetes API.

`controller` serves all claims, `claim` is one as the API server has it, `executor` is the
dispatcher's view of one: a process of an executor with one slot, for one task. `kilnwork.executor`
is the way for programs in Python and does not come by here.
"""
