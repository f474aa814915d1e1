"""The dispatcher: the journal of tasks, the machine that decides, the hub that talks to workers.

Used by controllers (`hub.Hub`, `model`) and the server (`queries`). `machine` decides and does no
I/O; `journal` is the disk; `hub` carries decisions out. Knows nothing of Kubernetes objects and
never calls an executor: instructions go out, observations come in.
"""
