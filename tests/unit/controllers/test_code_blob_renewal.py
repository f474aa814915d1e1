"""The code blobs that JobConfigs and Jobs refer to are renewed."""

import os
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import job, job_config, meta, sync_set, task
from kilnwork.controllers import caches, code_blob_renewal
from kilnwork.data import local_blobs
from kilnwork.kit import clock


def template(digest: bytes, *, finalizer: bytes | None = None) -> job.JobTemplate:
    def calls(named: bytes) -> task.TaskTemplate:
        return task.TaskTemplate(
            call=task.Call(function="a:b", environment=local_blobs.text(named))
        )

    last = None if finalizer is None else job.Finalizer(task_template=calls(finalizer))
    return job.JobTemplate(task_template=calls(digest), finalizer=last)


async def test_only_blobs_that_objects_refer_to_are_renewed(tmp_path: Path) -> None:
    time = clock.ManualClock()
    kept = local_blobs.Blobs(tmp_path / "ns", durable=False, time=time)
    config, final, run, other = (kept.put((text,))[0] for text in (b"1", b"2", b"3", b"4"))
    known = caches.Caches()
    metadata = meta.ObjectMeta(name="x", namespace="ns")
    allow = job_config.Concurrency(policy=job.ConcurrencyPolicy.ALLOW)
    made = job_config.JobTemplateSpec(spec=template(config, finalizer=final))
    spec = job_config.JobConfigSpec(template=made, concurrency=allow)
    known.job_configs.put(job_config.JobConfig(metadata=metadata, spec=spec))
    known.jobs.put(job.Job(metadata=metadata, spec=job.JobSpec(template=template(run))))
    known.jobs.put(job.Job(metadata=meta.ObjectMeta(name="y", namespace="ns")))

    digests = (config, final, run, other)
    for digest in digests:
        os.utime(kept.path(digest), (1, 1))
    await code_blob_renewal.CodeBlobs(known, tmp_path, time=time).renew()
    old = [kept.path(digest).stat().st_mtime == 1 for digest in digests]
    assert old == [False, False, False, True]


async def test_code_of_the_steps_of_a_set_is_renewed_at_any_depth(tmp_path: Path) -> None:
    time = clock.ManualClock()
    kept = local_blobs.Blobs(tmp_path / "ns", durable=False, time=time)
    digests = [kept.put((text,))[0] for text in (b"1", b"2", b"3", b"4")]
    outer, inner, last, other = map(local_blobs.text, digests)

    def step(digest: str) -> dict[str, Any]:
        return {"taskTemplate": {"call": {"function": "a:b", "code": digest}}}

    steps = [{"one": step(outer)}, {"many": {"fork": {"left": step(inner), "right": step(outer)}}}]
    body = {
        "metadata": {"name": "x", "namespace": "ns"},
        "spec": {
            "resources": {"groups": [{"name": "worker"}]},
            "flow": {"do": steps, "finally": [{"end": step(last)}]},
        },
    }
    known = caches.Caches()
    known.sync_sets.put(msgspec.convert(body, sync_set.SyncSet))
    for digest in digests:
        os.utime(kept.path(digest), (1, 1))
    await code_blob_renewal.CodeBlobs(known, tmp_path, time=time).renew()
    old = [kept.path(digest).stat().st_mtime == 1 for digest in digests]
    assert old == [False, False, False, True], other


async def test_code_of_generations_that_can_be_replayed_is_renewed(tmp_path: Path) -> None:
    time = clock.ManualClock()
    kept = local_blobs.Blobs(tmp_path / "ns", durable=False, time=time)
    before, forgotten = (kept.put((text,))[0] for text in (b"1", b"2"))
    for digest in (before, forgotten):
        os.utime(kept.path(digest), (1, 1))
    renewed = code_blob_renewal.CodeBlobs(caches.Caches(), tmp_path, time=time)
    await renewed.renew(lambda: {"ns": {before}})
    old = [kept.path(digest).stat().st_mtime == 1 for digest in (before, forgotten)]
    assert old == [False, True]


async def test_missing_blob_is_ignored(tmp_path: Path) -> None:
    known = caches.Caches()
    spec = job.JobSpec(template=template(b"\0" * 32))
    known.jobs.put(job.Job(metadata=meta.ObjectMeta(name="x", namespace="ns"), spec=spec))
    await code_blob_renewal.CodeBlobs(known, tmp_path, time=clock.ManualClock()).renew()
