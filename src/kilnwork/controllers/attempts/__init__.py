"""Attempts of executors other than the worker: instructions go down, observations come up.

`reconciler` receives instructions of the dispatcher and has `executors` carry them out. For one
attempt: RunAttempt puts it on the queue; each pass over its key ensures, observes or stops it, and
reports changes; when its end is stored, the executor may release it.
"""
