"""The REST API of the manager under `/v1`, health and metrics, as ASGI apps.

Mounted by the composition roots: in `kiln up` behind the embedded API server, on the same ports; in
a cluster on ports of the manager. `guard` authenticates requests, and puts the caller into
`scope["kiln.user"]`. Tasks are reached through `ports.Journal`: reads come from the journal or the
hub, and all changes go through the hub. `jobs` serves file jobs, `problems` formats errors. The
embedded API server is a different app, in `controlplane`.
"""
