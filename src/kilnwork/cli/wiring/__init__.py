"""The composition root of servers: the one manager, and the two places where it runs.

The only package that knows all of `controlplane`, `dispatch`, `controllers` and `server`. The
commands `up` and `manager` choose a root; `foreground_server` owns the process around it: signals,
output.

`manager.Manager` is the same in both: controllers, dispatcher with its journal, jobs, and the REST
API behind one guard. Each root says what is started, in which order; all of it is stopped in the
reverse order, and a part that fails to stop does not keep the others.

`embedded` (`kiln up`):

1. API server: Kubernetes in this process; it responds, but `/readyz` does not pass yet.
2. Dispatcher: the journal is taken over, channel and REST API open. It stops after the node, since
   until then it hears how tasks ended.
3. Node. Stopping it ends every Pod.
4. Controllers. They stop first, so that nothing is replaced.
5. TaskCluster `default`, at the very first start. Then all of it is ready.

`in_cluster` (`kiln manager`):

1. Data directory: its lock and its certificate authority.
2. Listener: health responds, all else is not ready.
3. Leadership: waits until no other manager leads. Only the leader is ready, and so behind the
   Service. It is given back after the dispatcher has stopped.
4. Dispatcher. Workers keep their tasks when it stops, and wait for the next one.
5. Controllers. Then it is ready.
"""
