"""The local node: a virtual kubelet that runs containers as processes. Linux only.

`kiln up` starts `local_node.LocalNode`, and `kiln node` does so through `virtual_node`.
`reconciler` brings each Pod to the state that its object describes, and takes over the containers
of an earlier shim, which `shim_supervisor` finds. The node uses the API server over HTTP only, and
leaves the processes to the *shim* (`shim`, a small process that survives a SIGKILL of the server).
Images are only labels: programs come from the machine. There is no scheduler and no image store.

This package imports nothing: the shim starts through it and must stay small.
"""
