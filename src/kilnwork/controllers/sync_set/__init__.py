"""The SyncSet controller: pins the data, starts the workers together next to it, runs the flow.

`reconciler` is the shell; `plan` decides what happens next, `status` what the status says,
`requirements` what gang, data and flow a spec asks for (all pure). Gangs are started by
`controllers.gangs`, data is fetched by `controllers.data_pond`, flows are run by `jobs.flows`; each
is asked by a protocol in `ports`.
"""
