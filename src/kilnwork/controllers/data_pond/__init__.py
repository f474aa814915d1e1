"""Kind DataPond: agents on nodes, what they are asked for, and what they say.

`reconciler` makes the Secret and the agents' Pods (`plan`, `pods`: pure) and writes the status
(`status`: pure). `ledger` is what others in the manager use: which snapshots are wanted where, and
where they are.
"""
