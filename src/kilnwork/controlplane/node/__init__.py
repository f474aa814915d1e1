"""Our node: a virtual kubelet that runs Pods as process groups, Linux only.

`local_node.LocalNode` is what the server starts. `reconciler` brings each Pod to what its object
says, and takes over what a shim of before still holds, which `supervisor` finds. The node reaches
the API server over HTTP only, and leaves the processes themselves to the *shim* (`shim`, a small
process that outlives a SIGKILL of the server). Images are labels here: programs come from the host.
No scheduler, no image store.

Kept free of imports: the shim starts through this package and must stay small.
"""
