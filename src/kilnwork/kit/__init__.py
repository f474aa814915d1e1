"""General tools: clock, ids, back-off, coroutine tasks, processes, logging, the root of errors.

Every package may use it, and it uses no other package of kilnwork.
"""
