"""In-memory records of Jobs, for tests of decisions about them."""

from typing import Any

import msgspec

from kilnwork.api import job as api_job
from kilnwork.jobs import file_job_types, index_item_source, live_job_state

_SOURCES = index_item_source.IndexSources()


def job(count: int = 3, *, suspend: bool = False, **template: Any) -> live_job_state.Job:
    """Return a Job of so many indexes, none of which has started."""
    given = {"taskTemplate": {"command": ["true"]}, "parallelism": {"withCount": count}, **template}
    spec = msgspec.convert({"template": given}, api_job.JobSpec)
    assert spec.template is not None
    definition = index_item_source.IndexDefinition(name="job", template=spec.template)
    return live_job_state.Job(
        file_job_types.JobId(bytes(16), "job"),
        row=1,
        namespace="ns",
        spec=index_item_source.IndexSpec(name="job", suspend=suspend),
        source=_SOURCES.new(definition),
        created=0.0,
    )
