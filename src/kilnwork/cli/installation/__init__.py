"""What `kiln install` prints: every object that a manager in a Kubernetes cluster needs.

`all_objects` puts together, with what the API server refuses by itself; `rights` says who may do
what and why, `workload` the manager's own Service and Pod. Pure: settings in, objects out, the
same each time.
"""
