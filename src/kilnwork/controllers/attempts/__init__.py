"""The controller of attempts that run outside of workers: it passes on instructions to executors,
and their observations to the dispatcher.

`reconciler` receives instructions of the dispatcher and has `executors` carry them out. For one
attempt: RunAttempt puts it on the queue; each pass over its key ensures, observes or stops it, and
reports changes; when its end is stored, the executor releases it.
"""
