"""The TaskCluster controller: maintains the requested number of worker Pods, and their Secret.

`reconciler` is the shell that reads and writes. `plan` decides which Pods to create and delete,
and when the finalizer of a deleted cluster is removed; `deletion` decides how long it may drain,
`worker_removal` which workers are removed first; `object_creation` creates Secret and Pods,
`status` the status. The workers connect to the dispatcher by themselves.
"""
