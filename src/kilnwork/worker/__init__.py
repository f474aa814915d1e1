"""The worker: an agent in a Pod that runs tasks for the dispatcher, one process at a time per slot.

Started as a process (`python -m kilnwork.worker`), never imported by other rooms. `agent` holds the
link and the attempts, `attempt` is one of them from Run to Finished; the rest is what they need.
It knows nothing of Kubernetes beyond the service-account files that it hands on. Linux only.
"""
