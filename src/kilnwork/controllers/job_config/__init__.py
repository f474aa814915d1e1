"""The controller of kind JobConfig, which creates Jobs by schedule, and maintains counts and
history.

`plan` decides and `status` creates the status, both pure; `reconciler` is the shell. A tick is
decided in the journal before its Job is created, so that it creates exactly one Job whatever
happens (decision 39).
"""
