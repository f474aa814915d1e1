"""The controller of kind Job: hands Jobs to the engine of jobs, and writes their status.

`plan` decides and `status` makes the status, both pure; `reconciler` is the shell.
"""
