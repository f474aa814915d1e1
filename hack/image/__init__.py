"""Container images from files of this machine, without a container engine.

`python -m hack.image` writes the worker image; hack/kube writes the small ones of its nodes with
`oci`. For tests and experiments: nothing in these images is updated or scanned.
"""
