"""Executor `http`: sends the requests of tasks with `spec.http` or `spec.function`.

Started by `kiln executor http`, any number of them. Each is a peer of the dispatcher with a lease,
as a worker is (docs/decisions/0036); nothing here runs in the manager.
"""
