"""The Job rendered for Volcano satisfies Volcano's own schema, checked as an API server does."""

from pathlib import Path

import yaml

from kilnwork.api import api_resources, volcano_rendering
from kilnwork.kube import errors
from support import embedded_server, peer_sources, waiting

GOLDEN = Path(__file__).parents[1] / "support" / "volcano" / "volcano.yaml"

JOBS = api_resources.Resource(
    group="batch.volcano.sh", version="v1alpha1", kind="Job", plural="jobs", singular="job"
)


async def test_job_is_valid_without_unknown_fields(tmp_path: Path) -> None:
    text = peer_sources.read(
        "volcano", "volcano/config/crd/volcano/bases/batch.volcano.sh_jobs.yaml"
    )
    [job] = [
        one
        for one in yaml.safe_load_all(GOLDEN.read_text())
        if one["apiVersion"] == volcano_rendering.API_VERSION
    ]
    async with embedded_server.admin_client(tmp_path) as kube:
        await kube.create(api_resources.CUSTOM_RESOURCE_DEFINITIONS, yaml.safe_load(text))
        spaces = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quant"}}
        await kube.create(api_resources.NAMESPACES, spaces)

        async def made() -> dict[str, object] | None:
            try:
                return await kube.create(JOBS, job, "quant")
            except errors.NotFound:  # the definition is not established yet
                return None

        found = await waiting.wait_until_async(made, what="the Job is made")
        assert found is not None
        assert found["spec"] == job["spec"]  # unknown fields would have been pruned
