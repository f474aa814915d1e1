"""Kind TaskClaim: tasks of `spec.external` for programs that use only the Kubernetes API.

`controller` serves all claims, `claim` is one claim at the API server, `claim_executor` presents it
to the dispatcher as a process of an executor with one slot, for one task. Programs in Python use
`kilnwork.executor` instead.
"""
