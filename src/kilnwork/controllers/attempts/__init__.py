"""Attempts of executors other than the worker: instructions down, observations up.

`reconciler` gets instructions of the dispatcher and has `executors` carry them out. One attempt:
RunAttempt puts it on the queue; each pass over its key ensures, observes or stops it, and reports
what is new; when its end is stored, the executor may release it.
"""
