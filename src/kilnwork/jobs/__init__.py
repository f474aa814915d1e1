"""File jobs: one file in, mapped part by part in parallel, one ordered result out.

`service` is what server, sdk and CLI talk to: it finds the job of an idempotency key, and returns
when a new one is on disk. `facts` takes in what has happened (an item has ended, its record is
missing, its run is to be repeated), `plan` decides what comes next; both are pure. `engine` carries
out, `tables` keeps the jobs in the journal, `work` runs in the slots of workers. Items come from an
`item_source`; `file_items`, the parts of a file, is one. The commit records in the store say how
parts ended (`kilnwork.data.commits`); the dispatcher's tasks only do the work. No HTTP, no
Kubernetes objects.
"""
