"""Composition root of servers: the manager, and the two environments in which it runs.

The only package that imports all of `controlplane`, `dispatch`, `controllers` and `server`. The
commands `up` and `manager` select a root; `foreground_server` owns the process: signals and output.

`manager.Manager` is the same in both: controllers, dispatcher with its journal, jobs, and the REST
API behind one guard. Each root starts its parts in a fixed order and stops them in the reverse
order; a part that fails to stop does not prevent the others from stopping.

`embedded` (`kiln up`):

1. API server: Kubernetes in this process; it responds, but `/readyz` does not pass yet.
2. Dispatcher: takes over the journal, opens channel and REST API. It stops after the node, because
   until then it receives the ends of tasks.
3. Node. Stopping it ends every Pod.
4. Controllers. They stop before the node, so that nothing is replaced.
5. TaskCluster `default`: created at the first start, and again if its kind is defined again. Then
   the server is ready.

`in_cluster_server` (`kiln manager`):

1. Data directory: its lock and its certificate authority.
2. Listener: health checks respond, everything else is not ready.
3. Leadership: waits until no other manager leads. Only the leader is ready, and so behind the
   Service. It is released after the dispatcher has stopped.
4. Dispatcher. Workers keep their tasks when it stops, and wait for the next one.
5. Controllers. Then the manager is ready.
"""
