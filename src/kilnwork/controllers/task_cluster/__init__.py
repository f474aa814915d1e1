"""The TaskCluster controller: keeps as many worker Pods as the spec asks for, and their Secret.

`reconciler` is the shell that reads and writes. `plan` decides which Pods to make and delete, and
when a cluster that is deleted lets go of its finalizer; `deletion` says how long it may drain,
`worker_removal` which workers go first, `object_creation` what is made, and `status` what the
status says. The workers connect to the dispatcher by themselves.
"""
