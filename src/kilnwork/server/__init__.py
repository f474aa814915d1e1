"""The REST API of the manager under `/v1`, health and metrics, as ASGI apps.

Mounted by the composition root next to the Kubernetes paths, on the same ports and behind the same
authentication, which puts the caller into `scope["kiln.user"]`. It reads the journal through
`dispatch.journal.sqlite.queries`, and writes through the hub only. `guard` authenticates requests,
`jobs` serves file jobs, `problems` formats errors. The embedded API server is a different app, in
`controlplane`.
"""
