"""Measures Jobs and JobConfigs beside batch Jobs and CronJobs of the real Kubernetes, in one run.

    python -m hack.kube run --node --image IMAGE --crd FILE … -- python bench/jobs_real.py
                            [--only WORD] [--short] [--repeat N] [--no-gates] [--wait S]
                            [--json FILE]

Run by `make bench-cluster`. The floor of each figure is what Kubernetes' own kind comes to on the
same control plane, with the same client, in turn. Pods run on a kubelet; the manager, and the one
worker that the Jobs run on, are Pods there.
"""

import asyncio
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import frame
import jobs
import machine
from figures import Figure

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import cluster_home  # noqa: E402
from hack.image import worker as image  # noqa: E402

from kilnwork.api import api_resources, kinds, meta  # noqa: E402
from kilnwork.kube import client as kube_client  # noqa: E402
from kilnwork.kube import config as kube_config  # noqa: E402
from support import kube_cluster, kube_manager, waiting  # noqa: E402

SCHEDULES = 100
MINUTES = 3
INDEXES = 60
"""All of them at once: a kubelet has room for some hundred Pods."""
SMALL_JOBS = 20
JOBS = 500
QUIET_S = 3.0
"""Without a write: then what belongs to a Job is written. A kubelet tells of its Pods later."""
WRITTEN = ("jobs", "pods", "events", "tasks")
"""Resources that any client writes to because of a Job."""

BATCH_JOBS = api_resources.Resource(
    group="batch", version="v1", kind="Job", plural="jobs", singular="job"
)
CRON_JOBS = api_resources.Resource(
    group="batch", version="v1", kind="CronJob", plural="cronjobs", singular="cronjob"
)

Measure = Callable[["World"], Any]


class Run(NamedTuple):
    """Seconds from the first create to the last end; writes for each Job, and all of them."""

    took: float
    writes: float
    written: Counter[str]


class World:
    """The cluster with a manager and a worker, and a client of it."""

    def __init__(self, manager: kube_manager.Manager, node: str, kube: kube_client.Client) -> None:
        self.manager = manager
        self.node = node
        self.kube = kube

    def pod(self) -> meta.JsonObject:
        """Return the spec of an empty Pod on that node, of an image that it has."""
        container = {"name": "main", "image": image.name(), "command": ["true"]}
        return {
            "nodeName": self.node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container | {"imagePullPolicy": "IfNotPresent"}],
        }

    def batch_job(self, name: str, indexes: int = 1) -> meta.JsonObject:
        """Return an indexed batch Job, all of whose Pods may run at once."""
        spec = {
            "completions": indexes,
            "parallelism": indexes,
            "completionMode": "Indexed",
            "template": {"spec": self.pod()},
        }
        return {"metadata": {"name": name}, "spec": spec}

    def pod_job(self, name: str, indexes: int) -> meta.JsonObject:
        """Return a Job of ours whose indexes are the same Pods."""
        bare = {"annotations": {"kilnwork.dev/sidecar": "false"}}
        task = {"pod": {"metadata": bare, "spec": self.pod()}}
        return jobs.job(name, indexes, task=task)

    async def writes(self) -> Counter[str]:
        """Return the writes so far, by the API server's metrics, once writing has stopped."""
        before: Counter[str] | None = None
        while True:
            found = cluster_home.count_writes(self.manager.kube.kubectl("get", "--raw", "/metrics"))
            now = Counter({k: n for k, n in found.items() if k.split("/")[0] in WRITTEN})
            if now == before:
                return now
            before = now
            await asyncio.sleep(QUIET_S)

    async def run(self, kind: api_resources.Resource, bodies: list[meta.JsonObject]) -> Run:
        """Create Jobs, wait for their ends, and delete them."""
        before = await self.writes()
        took = await jobs.run_all(self.kube, bodies, kind)
        wrote = await self.writes() - before
        await jobs.delete_all(self.kube, kind, [body["metadata"]["name"] for body in bodies])
        await self.wait_for_no_pods()
        return Run(took, wrote.total() / len(bodies), wrote)

    async def wait_for_no_pods(self) -> None:
        """Wait until the Pods of Jobs are gone; that of the worker stays."""
        while True:
            listed = await self.kube.list(api_resources.PODS, jobs.NS, type=meta.Partial)
            if len(listed.items) <= 1:
                return
            await asyncio.sleep(0.2)


def command() -> meta.JsonObject:
    """Return a process that does nothing, on the warm worker."""
    return {"command": ["true"]}


async def ticks(world: World, minutes: int) -> list[Figure]:
    """Measure the delay of Jobs of schedules due at once: CronJobs in the first second of each
    minute, JobConfigs in the 30th.
    """
    theirs, ours = [], []
    names = [f"tick-{n}" for n in range(SCHEDULES)]
    await jobs.create_all(world.kube, CRON_JOBS, [cron_job(world, name) for name in names])
    configs = [jobs.config(name, "30 * * * * * *") for name in names]
    for one in configs:
        one["spec"]["template"]["spec"]["taskTemplate"] = command()
    await jobs.create_all(world.kube, kinds.JOB_CONFIGS, configs)
    async with (
        jobs.following(world.kube, BATCH_JOBS) as batch,
        jobs.following(world.kube) as made,
    ):
        start = int(time.time()) // 60 * 60 + 60
        wanted = SCHEDULES * minutes
        await made.until(lambda: wanted <= sum(jobs.tick_of(n) > start for n in made.there))
        await asyncio.sleep(2)
        for name, at in batch.there.items():
            theirs.append((jobs.tick_of(name) * 60, at))
        ours += [(jobs.tick_of(name), at) for name, at in made.there.items()]
    for kind in (CRON_JOBS, kinds.JOB_CONFIGS):
        await jobs.delete_all(world.kube, kind, names)
    late = [sorted(at - due for due, at in found if due >= start) for found in (theirs, ours)]
    if any(len(one) < wanted for one in late):
        raise AssertionError(f"of {wanted} Jobs {[len(one) for one in late]} were seen")
    return [
        Figure(
            f"{SCHEDULES} schedules due at once, tick → Job, p{percent}",
            machine.percentile(late[1], percent) * 1e3,
            "ms",
            machine.percentile(late[0], percent) * 1e3,
            more={"beside": "CronJobs"},
        )
        for percent in (50, 99)
    ]


def cron_job(world: World, name: str) -> meta.JsonObject:
    """Return a CronJob due each minute; its Jobs make no Pods, so only the schedule is measured."""
    job = world.batch_job("")["spec"] | {"suspend": True}
    spec = {"schedule": "* * * * *", "timeZone": "Etc/UTC", "jobTemplate": {"spec": job}}
    return {"metadata": {"name": name}, "spec": spec}


async def indexes(world: World, repeat: int) -> list[Figure]:
    """Measure one Job of many indexes from created to finished, and its writes."""
    theirs, warm, pods = [], [], []
    for n in range(repeat):
        theirs.append(await world.run(BATCH_JOBS, [world.batch_job(f"b-{n}", INDEXES)]))
        work = jobs.job(f"warm-{n}", INDEXES, task=command())
        warm.append(await world.run(kinds.JOBS, [work]))
        pods.append(await world.run(kinds.JOBS, [world.pod_job(f"pods-{n}", INDEXES)]))
    return [
        *compare(f"Job of {INDEXES} indexes, on one warm worker", warm, theirs),
        *compare(f"Job of {INDEXES} indexes that are Pods", pods, theirs),
    ]


def compare(what: str, ours: list[Run], theirs: list[Run]) -> Iterator[Figure]:
    """Return seconds and writes of ours and of Kubernetes' own kind."""
    took, floor = seconds(ours), seconds(theirs)
    more = {"beside": "an indexed batch Job"}
    yield Figure(f"{what}, created → finished", took, "s", floor, more=more)
    yield write_targets(f"{what}: API writes", ours, theirs)


def seconds(runs: list[Run]) -> float:
    return statistics.median(run.took for run in runs)


def write_targets(what: str, ours: list[Run], theirs: list[Run]) -> Figure:
    """Return the writes of a Job, and their targets in the last run."""
    mine, floor = (statistics.median(run.writes for run in runs) for runs in (ours, theirs))
    more = {"ours": dict(ours[-1].written), "theirs": dict(theirs[-1].written)}
    return Figure(what, mine, "", floor, more=more)


async def rates(world: World, repeat: int) -> list[Figure]:
    """Measure Jobs of one task created and finished a second, beside batch Jobs and bare
    objects.
    """
    theirs: list[Run] = []
    few: list[Run] = []
    many: list[Run] = []
    bare = []
    for n in range(repeat):
        batch = [world.batch_job(f"b-{n}-{m}") for m in range(SMALL_JOBS)]
        theirs.append(await world.run(BATCH_JOBS, batch))
        small = [jobs.job(f"few-{n}-{m}", task=command()) for m in range(SMALL_JOBS)]
        few.append(await world.run(kinds.JOBS, small))
        bare.append((await jobs.bare_rates(world.kube, JOBS, str(n)))[1])
        bodies = [jobs.job(f"rate-{n}-{m}", task=CALL) for m in range(JOBS)]
        many.append(await world.run(kinds.JOBS, bodies))
    what = f"{SMALL_JOBS} Jobs of one command"
    more = {"beside": f"{SMALL_JOBS} batch Jobs of one Pod"}
    each, floor = SMALL_JOBS / seconds(few), SMALL_JOBS / seconds(theirs)
    return [
        Figure(f"{what}, created → finished", each, "/s", floor, more=more),
        write_targets(f"{what}: API writes of each", few, theirs),
        Figure(
            f"{JOBS} Jobs of one call, created → finished",
            JOBS / seconds(many),
            "/s",
            statistics.median(bare),
            more={"beside": "bare ConfigMaps, created and deleted"},
        ),
    ]


CALL = {"call": {"function": "os:getpid"}}
"""A call that does nothing and is in every image."""


def shapes(options: Any) -> dict[str, frame.Shape]:
    """Return all measurements by name."""
    repeat = 1 if options.short else options.repeat
    found: dict[str, Measure] = {
        "ticks": lambda world: ticks(world, 1 if options.short else MINUTES),
        "indexes": lambda world: indexes(world, repeat),
        "rates": lambda world: rates(world, repeat),
    }
    return {name: lambda measure=measure: measured(measure) for name, measure in found.items()}


def measured(measure: Measure) -> Iterator[Figure]:
    """Install a manager with one worker of two slots, and measure."""
    kube = kube_cluster.Kube(Path(os.environ["KILN_KUBE_DIRECTORY"]))
    [node] = kube.real_nodes()
    waiting.wait_until(lambda: kube.node_is_ready(node), what=f"{node} is Ready", timeout_s=120)
    home = kube_manager.on_real_node(node, "--storage", "emptyDir")
    with kube_manager.installed(kube, home) as manager:
        manager.start_cluster("default", namespace=jobs.NS, slotsPerWorker=jobs.SLOTS)
        yield from asyncio.run(_connected(measure, manager, node))
        kube.kubectl("delete", "taskcluster", "default", f"--namespace={jobs.NS}", "--wait=true")


async def _connected(measure: Measure, manager: kube_manager.Manager, node: str) -> list[Figure]:
    async with kube_client.Client(kube_config.load(manager.kube.kubeconfig)) as kube:
        world = World(manager, node, kube)
        await jobs.run_all(kube, [jobs.job("warm", task=command())])
        await jobs.run_all(kube, [world.batch_job("warm")], BATCH_JOBS)
        await jobs.delete_all(kube, BATCH_JOBS, ["warm"])
        await jobs.delete_all(kube, kinds.JOBS, ["warm"])
        await world.wait_for_no_pods()
        found: list[Figure] = await measure(world)
        return found


def main() -> int:
    """Measure, print and write figures; return 1 if a gate was missed."""
    parser = frame.parser(__doc__, name="jobs_real")
    parser.set_defaults(repeat=3, wait=60)
    parser.add_argument("--short", action="store_true", help="one minute of ticks, one repetition")
    options = parser.parse_args()
    return frame.run(shapes(options), options, again=False)


if __name__ == "__main__":
    sys.exit(main())
