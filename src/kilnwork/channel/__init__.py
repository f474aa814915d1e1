"""The channel: framed messages between the dispatcher and its peers (workers, slots, drivers,
executors).

`messages` defines the messages, `frames` encodes and decodes them, `worker_side` is a worker's end
of a link and `blocking_link` that of a driver or slot. The dispatcher's end is
`kilnwork.dispatch.hub.hub`. This package knows nothing of Kubernetes.
"""
