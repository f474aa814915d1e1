"""The channel: framed messages between the dispatcher and its peers (workers now, drivers later).

`messages` are the values, `frames` cuts bytes into them, `peer` is the end that a worker holds.
The dispatcher's end is `kilnwork.dispatch.hub.hub`. Knows nothing of Kubernetes.
"""
