"""Embedded Kubernetes: a store, an API server over it, garbage collection, binding, a local node.

`cluster.ControlPlane` ties the parts together and is what the command line starts. Speaks enough
Kubernetes REST for kubectl, k9s and client libraries; no etcd, no other process but the node's
containers. Controllers of our own kinds live elsewhere and reach this room over HTTP only.
"""
