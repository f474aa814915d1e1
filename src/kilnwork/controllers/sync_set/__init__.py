"""The SyncSet controller: pins the data, starts all workers together near the data, and runs the
flow.

`reconciler` is the shell. Pure modules: `plan` decides what happens next, `status` creates the
status, `requirements` derives gang, data and flow from a spec. Gangs are started by
`controllers.gangs`, data is fetched by `controllers.data_pond`, flows are run by `jobs.flows`, each
behind a protocol in `flow_pond_interfaces`.
"""
