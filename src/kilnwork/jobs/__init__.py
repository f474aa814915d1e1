"""Jobs: sets of tasks that end together. A job on a file maps it part by part into one ordered
result; a Job object runs a template for each index of an index set.

`engine` advances the jobs of both kinds in the dispatcher's commits: `transitions` applies what has
happened to a job's record (an item has ended, a run is to be repeated), `step_planning` decides
what comes next, `job_start_queue` decides which jobs may start; none of the three does I/O.
`row_storage` stores the jobs in the journal, `start_admission` keeps the conditions for which jobs
wait. `item_source` is the port for everything that depends on the kind of items.

`file_job_service` is the API for file jobs, which the server offers over HTTP: it finds the job of
an idempotency key, and returns when a new job is on disk. The items of file jobs are parts
(`file_item_source`); the commit records in the store say how they ended
(`kilnwork.data.part_commits`), and `work` runs in the slots of workers. `index_job_service` is the
API for the controllers on Jobs: their items are indexes (`index_item_source`), which end when their
tasks end. `flows` is the API for the SyncSet controller: its jobs are the steps of a flow.
`service_assembly` creates all services on one engine. No HTTP, no Kubernetes objects.
"""
