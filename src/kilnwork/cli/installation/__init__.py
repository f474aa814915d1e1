"""Objects that `kiln install` prints: everything that a manager in a Kubernetes cluster needs.

`all_objects` assembles them, with the admission policies; `rights` defines roles with their
reasons; `workload` has the manager's Service and Pod. Equal settings give equal objects.
"""
