"""The message with which a container ended, as its terminationMessagePolicy asks.

Used by `reconciler`. There is no file for messages on this node, so that `File` has none; with
`FallbackToLogsOnError` it is the end of the log (k8s.io/kubernetes pkg/kubelet/kuberuntime,
getTerminationMessage).
"""

from kilnwork.controlplane.node import container as containers
from kilnwork.controlplane.node import log_reader, pods

MAX_LINES = 80
MAX_BYTES = 2048
"""Both are the kubelet's (MaxContainerTerminationMessageLogLines, …LogLength)."""


def with_message(pod: pods.Pod | None, name: str, record: containers.Record) -> containers.Record:
    """The record of a container that has failed without a word, with the end of its log."""
    wanted = pod.container(name) if pod is not None else None
    if wanted is None or wanted.termination_message_policy != "FallbackToLogsOnError":
        return record
    if record.message or not record.exit_code:
        return record
    tail = log_reader.tail(containers.log_path(record), lines=MAX_LINES)
    return record._replace(message=tail[-MAX_BYTES:].decode("utf-8", "replace"))
