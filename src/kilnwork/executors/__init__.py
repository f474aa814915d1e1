"""Executors, which run attempts that are not processes of a worker: as Pods, containers, other
objects, HTTP requests, or calls of a user's function.

Executors in the manager (`pod`, `ephemeral`, `custom_resource`, `workflow`) implement `port`, and
`registry` holds them by name. `controllers.attempts` passes the dispatcher's instructions to them,
and reports their observations to the dispatcher; they never call it themselves. `http` and
`external` run in processes of their own (`service`), which connect to the dispatcher as workers do.
"""
