"""Tools with no domain: clock, ids, backoff, coroutine tasks, processes, logging, the error root.

Every package may use it; it knows nothing of tasks or Kubernetes.
"""
