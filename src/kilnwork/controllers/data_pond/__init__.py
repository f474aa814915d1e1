"""The controller of kind DataPond, which runs agents on nodes, gives them orders and receives their
reports.

`reconciler` creates the Secret and the agents' Pods (`plan`, `pods`: pure) and writes the status
(`status`: pure). `ledger` is for the rest of the manager: which snapshots are wanted on which
nodes, and where they are.
"""
