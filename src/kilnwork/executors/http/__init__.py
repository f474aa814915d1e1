"""Executor `http`: sends the requests of tasks with `spec.http` or `spec.function`.

Started by `kiln executor http`, in any number of processes. Each is a peer of the dispatcher with a
lease, like a worker (docs/decisions/0036); nothing in this package runs in the manager.
"""
