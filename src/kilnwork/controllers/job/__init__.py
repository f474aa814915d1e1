"""The controller of kind Job: hands Jobs to the engine of jobs, and writes what becomes of them.

`plan` decides and `status` words it, both pure; `reconciler` is the shell.
"""
