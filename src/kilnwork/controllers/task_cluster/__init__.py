"""The TaskCluster controller: keeps as many worker Pods as the spec asks for, and their Secret.

`reconciler` is the shell that reads and writes. `plan` decides which Pods to make and delete, and
when a deleted cluster loses its finalizer; `deletion` says how long it may drain, `worker_removal`
which workers go first; `object_creation` makes Secret and Pods, `status` the status. The workers
connect to the dispatcher by themselves.
"""
