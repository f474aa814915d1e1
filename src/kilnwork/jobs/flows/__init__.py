"""Flows: steps of a SyncSet's generation, each of them a job of the engine.

`runs` is what the SyncSet controller talks to: it starts, pauses, ends and shows runs. Its plan
(`plan`, pure; on what `records` has) says which steps start, end or are stopped by what has
happened; it is asked in the batch in which a step's job ends, and what follows is in that batch
too. `step_inputs` says what a step's tasks get, `step_items` makes a job of it, `results` reads
what came of it, `tables` keeps runs in the journal. Not what a flow says: `api.flow`.
"""
