"""Tools with no domain: clock, ids, backoff, coroutine tasks, processes, logging, the error root.

Every room may use it; it knows nothing of tasks or Kubernetes. One noun per file.
"""
