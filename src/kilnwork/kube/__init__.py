"""A client for any Kubernetes API: requests, caches that follow the server, controllers.

`config` and `client` connect to a server; `reflector` updates a `cache` from it; `queue`,
`controller` and `manager` run reconcilers on keys; `events` records kube events. Used by
controllers, the local node, executors, the manager and the command line. It knows only the metadata
of objects, and holds no state that a restart would lose.
"""
