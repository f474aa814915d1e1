"""Declared tasks on a real cluster that note each start; the fault tests run them under faults.

A note is one line, TASK RUN ATTEMPT, appended to a file in a directory of the machine that every
worker mounts; a line that occurs twice means code that ran twice.
"""

import collections
from typing import Any

from support import kube_manager, waiting

CLUSTER = "load"
FINAL = ("Success", "Failed", "Killed")
_TASKS = "/apis/kilnwork.dev/v1alpha1/namespaces/{}/tasks"
_COMMAND = 'echo "$TASK_NAME $KILN_RUN $KILN_ATTEMPT" >> /notes/ran; '
_SLEEP = "sleep {}"
_UNTIL_RELEASED = "until test -e /notes/released; do sleep 0.2; done"


class Load:
    """Tasks of one namespace on one TaskCluster, whose workers are on the manager's node."""

    def __init__(self, manager: kube_manager.Manager, namespace: str) -> None:
        self.namespace = namespace
        self._manager = manager
        self._kube = manager.kube
        self._directory = manager.kube.directory / "notes" / namespace
        self._names: list[str] = []

    def prepare(self, *, workers: int = 2, slots: int = 2, **spec: Any) -> None:
        """Create the TaskCluster and wait until its workers are connected. `spec` adds to the spec
        of their Pods.
        """
        self._directory.mkdir(parents=True)
        self._directory.chmod(0o777)
        container = {
            "name": "worker",
            "volumeMounts": [{"name": "notes", "mountPath": "/notes"}],
        }
        pod = {
            **self._manager.home.spec,
            "containers": [container],
            "volumes": [{"name": "notes", "hostPath": {"path": str(self._directory)}}],
            **spec,
        }
        made = self._manager.cluster(CLUSTER, namespace=self.namespace)
        made["spec"] |= {"replicas": workers, "slotsPerWorker": slots, "template": {"spec": pod}}
        self._kube.apply(made)
        waiting.wait_until(
            lambda: self.ready_workers() == workers, what="all workers are ready", timeout_s=60
        )

    def ready_workers(self) -> int:
        """Return the number of connected workers in the status of the TaskCluster."""
        path = f"/apis/kilnwork.dev/v1alpha1/namespaces/{self.namespace}/taskclusters/{CLUSTER}"
        return int(self._read(path).get("status", {}).get("readyReplicas", 0))

    def start(self, count: int, *, seconds: float | None) -> None:
        """Create so many more Tasks that run for `seconds`; None: until `release`."""
        wait = _UNTIL_RELEASED if seconds is None else _SLEEP.format(seconds)
        for number in range(len(self._names), len(self._names) + count):
            name = f"load-{number}"
            body = {
                "apiVersion": "kilnwork.dev/v1alpha1",
                "kind": "Task",
                "metadata": {"name": name},
                "spec": {
                    "clusterName": CLUSTER,
                    "command": ["sh", "-c", _COMMAND + wait],
                },
            }
            self._make(body)
            self._names.append(name)

    def release(self) -> None:
        """Let the tasks end that wait for it."""
        (self._directory / "released").touch()

    def _make(self, body: dict[str, Any]) -> None:
        """Create an object; repeat while an API server that has just started responds with 429."""

        def made() -> bool:
            response = self._kube.http.post(_TASKS.format(self.namespace), body)
            return response.status != 429 and bool(response.ok())

        waiting.wait_until(made, what="a Task is made", every_s=0.5)

    def wait_known(self) -> None:
        """Wait until each task has a status; after that the manager can go on without the API
        server.
        """

        def known() -> bool:
            found = self.statuses()
            return all(found.get(name, {}).get("state") for name in self._names)

        waiting.wait_until(known, what="the manager knows all tasks")

    def wait_running(self, count: int = 1) -> None:
        """Wait until the code of so many tasks has begun to run."""
        waiting.wait_until(lambda: len(self.notes()) >= count, what="tasks run", timeout_s=40)

    def notes(self) -> list[str]:
        path = self._directory / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def statuses(self) -> dict[str, dict[str, Any]]:
        items = self._read(_TASKS.format(self.namespace))["items"]
        return {item["metadata"]["name"]: item.get("status", {}) for item in items}

    def wait_final(self, *, timeout_s: float = 90.0) -> dict[str, dict[str, Any]]:
        def all_final() -> dict[str, dict[str, Any]] | None:
            found = self.statuses()
            final = all(found.get(name, {}).get("state") in FINAL for name in self._names)
            return found if final else None

        try:
            found = waiting.wait_until(
                all_final, what="all tasks are final", timeout_s=timeout_s, every_s=0.2
            )
        except AssertionError as error:
            open_ones = {n: s for n, s in self.statuses().items() if s.get("state") not in FINAL}
            raise AssertionError(f"{error}\n{open_ones}\n{self._manager.described()}") from error
        assert found is not None
        return found

    def check(self, *, losses: bool = False) -> None:
        """Check that every task succeeded and that no attempt's code ran twice.

        `losses`: workers were lost, so tasks may have more than one attempt.
        """
        statuses = self.wait_final()
        states = {name: s["state"] for name, s in statuses.items() if s["state"] != "Success"}
        assert states == {}, {name: statuses[name] for name in states}
        counts = collections.Counter(self.notes())
        assert {line for line, count in counts.items() if count > 1} == set()
        ran = collections.Counter(line.split()[0] for line in counts)
        assert set(ran) == set(self._names)
        for name, count in ran.items():
            attempts = statuses[name]["attempts"]
            assert count <= attempts, f"{name} ran {count} times in {attempts} attempts"
            if not losses:
                assert (count, attempts) == (1, 1), f"{name}: {statuses[name]}"

    def pods(self) -> list[str]:
        """Return the names of the worker Pods that are not terminating."""
        return list(self.pod_uids())

    def pod_uids(self) -> dict[str, str]:
        items = self._read(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        standing = [p["metadata"] for p in items if "deletionTimestamp" not in p["metadata"]]
        return {metadata["name"]: metadata["uid"] for metadata in standing}

    def _read(self, path: str) -> Any:
        """GET a path; None while an API server that has just started responds with 429 ("storage is
        (re)initializing").
        """

        def found() -> Any:
            response = self._kube.http.get(path)
            return None if response.status == 429 else response.ok()

        return waiting.wait_until(found, what=f"{path} is read", every_s=0.5)
