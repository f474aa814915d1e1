"""The SyncSet controller: pins the data, starts all workers together near the data, and runs the
flow.

`reconciler` is the shell. Modules without I/O: `plan` decides what happens next, `status` creates
the status, `requirements` derives gang, data and flow from a spec. Gangs are started by
`controllers.gangs`, behind the protocol `gangs.port.Backend`. Data is fetched by
`controllers.data_pond` and flows are run by `jobs.flows`, behind the protocols in
`flow_pond_interfaces`.
"""
