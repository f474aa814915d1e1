"""The real Kubernetes for tests: built from its Go modules, run on this machine, removed again.

`python -m hack.kube` is the command; tests use `cluster.Cluster`. Not for production: one of each
component, etcd without fsync, every key in one directory.
"""
