"""Flows: the steps of a SyncSet's generation; each step that runs tasks is a job of the engine.

`flow_service` is the API for the SyncSet controller: it starts, pauses, ends and shows runs.
`run_planning` decides from the records in `live_run_state` which steps start, end or are stopped.
It runs in the batch in which a step's job ends, and its decisions are written in that batch too.
`step_inputs` makes the inputs of a step's tasks, `step_item_source` makes a job of a step,
`step_results` reads the results of its tasks, `row_storage` stores runs in the journal. The meaning
of a flow is defined in `api.flow`.
"""
