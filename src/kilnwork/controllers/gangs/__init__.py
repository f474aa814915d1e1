"""Gangs: groups of workers that start together or not at all, by several backends behind one port.

Used by the SyncSet controller. Every group is a TaskCluster that the SyncSet owns, so that workers,
tokens and draining are those of any TaskCluster. `port` has the values and the protocol;
`cluster_manifests` makes TaskClusters, `capacity` says whether there is room for all, `members`
reads the state, `data_portions` says who has which part of the data, `gang_placement` who goes
where, all pure; `local_backend` and `pods_backend` are the backends. Everything follows from
objects, so that a new manager can continue from any point.
"""
