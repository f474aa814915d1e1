"""The worker: an agent process, and slot processes that each run one call at a time.

Started as a process in a Pod or by `kiln.start()` (`python -m kilnwork.worker`); no other package
imports it. `agent` holds the link to the dispatcher and the attempts. `attempt` runs one command,
from the message Run to the message Finished; `outcome_rules` and `result_file` decide how it ended.
`slot_process` runs Python calls in a process forked from the `zygote`. `memory_watch` ends the
largest task before the memory limit is reached.

Attempts in Pods of their own run other programs of this package: `sidecar`, or `pod_call` for a
Python call.

The worker does not use the Kubernetes API; it only passes service-account files on to its tasks.
Linux only.
"""
