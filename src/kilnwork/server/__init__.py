"""The REST API of the manager under `/v1`, health and metrics, as ASGI apps.

Mounted by the composition root next to the Kubernetes paths, on the same ports and behind the same
authentication: the app that mounts it puts the caller into `scope["kiln.user"]`. Reads the journal
through `dispatch.journal.sqlite.queries`, writes through the hub only. `guard` finds out who asks,
`jobs` are file jobs, `problems` is how errors look. Knows nothing of the embedded API server.
"""
