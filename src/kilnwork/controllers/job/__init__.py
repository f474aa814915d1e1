"""The controller of kind Job: passes Jobs to the engine of jobs, and writes their status.

`plan` decides and `status` creates the status, both pure; `reconciler` is the shell.
"""
