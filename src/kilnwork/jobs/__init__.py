"""Jobs: sets of tasks with one end. A job on a file maps it part by part into one ordered result; a
Job object runs a template for each index of an index set.

`engine` moves both, on the dispatcher's commits: `transitions` takes in what has happened (an item
has ended, a run is to be repeated), `plan` decides what comes next, `start_queue` who may start;
all three are pure. `tables` keeps the jobs in the journal, `admission` what they wait for. What is
particular to items is behind `item_source`.

`service` is what server, sdk and CLI talk to about files: it finds the job of an idempotency key,
and returns when a new one is on disk. Its items are parts (`file_items`); the commit records in the
store say how they ended (`kilnwork.data.commit_records`), `work` runs in the slots of workers.
`index_jobs` is what the controllers talk to about Jobs: its items are indexes (`index_items`),
which end as their tasks do. `assembly` makes both services on one engine. No HTTP, no Kubernetes
objects.
"""
