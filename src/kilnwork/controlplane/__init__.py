"""Embedded Kubernetes: a store, an API server over it, controllers, and a node, in one process.

It serves `kiln up` and tests of operators (`kilnwork.testing.kubernetes`): enough of the Kubernetes
REST API for kubectl, k9s and client libraries, on 127.0.0.1, with one SQLite file for all objects.
It is not for production clusters: one process, no replication, no network between Pods.

- `cluster.ControlPlane` assembles the parts and defines the order in which they start.
- `store` and `database` keep the objects: in memory for reads, durable before a change is visible.
- `apiserver` is the Kubernetes REST API over the store. `app` passes a request through `requests`,
  `authn` and `authz` to `resource_handler`, which calls `lists` (GET), `object_writer` with
  `admission` (writes), `deletion` or `watches`.
- `gc`, `binder`, `taint_eviction` and `pod_gc` are the controllers that every cluster has; those
  for namespaces, definitions and aggregated roles are in `apiserver`.
- `installed_kind_types` describes what other rooms install: kinds as CustomResourceDefinitions,
  with validation rules. No kind of kilnwork is named in this room.
- `node` runs Pods as processes and talks to the API server over HTTP, as a kubelet does.

The controllers of kilnwork's own kinds are in other rooms and use HTTP too. For the path of a
request through the modules see docs/explanation/embedded-kubernetes.md.
"""
