"""File jobs: one file in, mapped part by part in parallel, one ordered result out.

`service` is what server, sdk and CLI talk to; `plan` decides (pure), `engine` carries out, `tables`
keeps the jobs in the journal, `work` runs in the slots of workers. The commit records in the store
say how parts ended (`kilnwork.data.commits`); the dispatcher's tasks only do the work. No HTTP, no
Kubernetes objects.
"""
