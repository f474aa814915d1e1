"""General tools: clock, ids, back-off, coroutine tasks, processes, logging, the root of errors.

Every package may use it; it contains nothing about tasks or Kubernetes.
"""
