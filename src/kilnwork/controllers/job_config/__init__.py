"""The controller of kind JobConfig, which creates Jobs by schedule, maintains counts and history,
and creates a Knative Service if the spec requests one.

`plan` decides and `status` creates the status, both pure; `reconciler` is the shell. A tick is
decided in the journal before its Job is created, so that it creates exactly one Job whatever
happens (decision 39).
"""
