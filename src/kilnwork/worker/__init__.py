"""The worker: an agent in a Pod that runs tasks for the dispatcher, one process at a time per slot.

Started as a process (`python -m kilnwork.worker`), never imported by other rooms. `agent` holds the
link and the attempts; `attempt` is a command from Run to Finished, with `outcomes` and `results`
for how it ended; `slot` runs calls, forked from the `zygote`; `memory_watch` ends what uses too
much.
It knows nothing of Kubernetes beyond the service-account files that it hands on. Linux only.
"""
