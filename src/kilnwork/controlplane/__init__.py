"""Embedded Kubernetes: a store, an API server over it, controllers, and a node, in one process.

For `kiln up` and for tests of operators (`kilnwork.testing.kubernetes`): enough of Kubernetes REST
for kubectl, k9s and client libraries, on 127.0.0.1, with one SQLite file for everything. Not for
production clusters: one process, no replication, no network between Pods.

- `cluster.ControlPlane` puts the parts together; the order of their start stands there.
- `store` and `database` keep objects: in memory for reads, durable before a change is visible.
- `apiserver` is Kubernetes REST over the store. `app` takes a request through `requests`,
  `authn` and `authz` to `resources`, and from there it goes to `lists` (GET), `crud` with
  `admission` (writes), `deletion` or `watching`.
- `gc`, `binder`, `taint_eviction` and `pod_gc` are controllers that every cluster has; namespaces,
  definitions and aggregated roles have theirs in `apiserver`.
- `extensions` is what others install: kinds as CustomResourceDefinitions, with rules. No kind of
  kilnwork is known here.
- `node` runs Pods as processes and reaches the API server over HTTP, as a kubelet does.

Controllers of our own kinds are elsewhere and reach it over HTTP too. The way of a request, module
by module: docs/explanation/embedded-kubernetes.md.
"""
