"""The Task controller: brings declared tasks to the dispatcher, and their states back to objects.

`reconciler` is the shell that reads and writes, `plan` decides what to do with one Task, `status`
what its status says and when that is worth a write. Spawned tasks never come here.
"""
