"""The Task controller: passes declared tasks to the dispatcher, and writes their states to the Task
objects.

`reconciler` is the shell that reads and writes, `plan` decides what to do with one Task, `status`
creates its status and decides when it is written. Spawned tasks are not handled here.
"""
