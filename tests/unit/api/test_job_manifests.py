"""Manifests in Furiko's fields and in ours: nothing is wrong with any of them."""

from typing import Any

import pytest

from kilnwork.api import admission
from support import job_manifests

JUDGES = {"Job": admission.validate_job, "JobConfig": admission.validate_job_config}


@pytest.mark.parametrize("manifest", job_manifests.every(), ids=job_manifests.title)
def test_manifest_is_accepted(manifest: dict[str, Any]) -> None:
    assert JUDGES[manifest["kind"]](manifest) == []
