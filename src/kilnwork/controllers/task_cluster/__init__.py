"""The TaskCluster controller: keeps as many worker Pods as the spec asks for, and their Secret.

`reconciler` is the shell that reads and writes, `plan` decides which Pods to make and delete,
`leaving` which workers go first,
`status` what the status says. The workers connect to the dispatcher by themselves.
"""
