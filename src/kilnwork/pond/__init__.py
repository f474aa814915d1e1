"""The agent of a DataPond on one node: `python -m kilnwork.pond`, a process of its own.

The agent fetches snapshots from peers and sources to its node, keeps them for runs, presents them
as directory trees, and evicts snapshots that are not needed (`kilnwork.data.pond`). It connects to
the manager, reports the state of the node and receives orders (`manager_link`); other agents fetch
from it over mutual TLS (`peer_transfers`). It is started by the Pods that the controller of
DataPonds creates; no other package imports it.
"""
