"""The controller of kind DataPond: agents on nodes, their orders and their reports.

`reconciler` makes the Secret and the agents' Pods (`plan`, `pods`: pure) and writes the status
(`status`: pure). `ledger` is what others in the manager use: which snapshots are wanted where, and
where they are.
"""
