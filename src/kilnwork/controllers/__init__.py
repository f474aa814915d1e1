"""The controllers: they pass what users declare on to the dispatcher and to Pods, and write the
statuses of objects.

Most kinds have a package with the same modules: `reconciler` (shell), `plan` and `status` (without
I/O). A reconciler gets a key, reads everything, converges and may be repeated. Started by
`cli.wiring`. The controllers know nothing of HTTP servers, nodes or processes.
"""

from kilnwork.controllers.assembly import Controllers
from kilnwork.controllers.default_cluster import DefaultCluster
from kilnwork.controllers.worker_pods import WorkerPodSettings
from kilnwork.executors.container_logs import ReadLog

__all__ = ["Controllers", "DefaultCluster", "ReadLog", "WorkerPodSettings"]
