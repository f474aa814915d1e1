"""The controller of kind JobConfig: makes Jobs as schedules say, keeps counts and history.

`plan` decides and `status` makes the status, both pure; `reconciler` is the shell. A tick is
decided in the journal before its Job is made, so that it makes one Job whatever happens (decision
39).
"""
