"""Gangs: groups of workers that start together or not at all, with several backends behind one
port.

Used by the SyncSet controller. Each group is a TaskCluster that the SyncSet owns, so that workers,
tokens and draining are those of any TaskCluster. `port` has the values and the protocol. Modules
without I/O: `cluster_manifests` creates the TaskClusters, `gang_fit` checks whether there is room
for all members, `gang_state` reads the state, `data_portions` assigns parts of the data,
`gang_placement` assigns nodes. `processes_backend` and `pods_backend` are the backends, which
access the TaskClusters through `group_task_clusters`. Everything is derived from objects, so that a
new manager can continue from any point.
"""
