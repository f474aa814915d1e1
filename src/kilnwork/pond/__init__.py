"""The agent of a DataPond on one node: `python -m kilnwork.pond`, a process of its own.

Brings snapshots to its node from peers and sources, keeps them for runs, shows them as trees, and
evicts what is not needed (`kilnwork.data.pond`). It dials the manager, tells what it has and is
given what is wanted (`manager_link`); other agents fetch from it over mutual TLS (`peers`). Started
by the Pods that the controller of DataPonds makes; imported by no other room.
"""
