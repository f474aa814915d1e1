"""Any Kubernetes API, no kind of ours: client, caches that follow the server, controllers.

`config` and `client` talk to a server; `reflector` keeps a `cache` like it; `queue`, `controller`
and `manager` run reconcilers on keys; `events` records kube events. Used by controllers, the local
node and the command line. Knows no kind beyond metadata, and holds no state that a restart would
miss.
"""
