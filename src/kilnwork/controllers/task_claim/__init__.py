"""The controller of kind TaskClaim, by which programs that use only the Kubernetes API take tasks
of `spec.external`.

`controller` serves all claims, `claim_object` is one claim at the API server, `executor_adapter`
presents it to the dispatcher as a process of an executor with one slot, for one task. Programs in
Python use `kilnwork.executor` instead.
"""
