"""What a write is about."""

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane import store_types
from kilnwork.controlplane.apiserver import authn, write_types


@pytest.mark.parametrize(
    ("kind", "namespace", "expected"),
    [
        (api_resources.PODS, "ns", "ns"),
        (api_resources.PODS, None, ""),
        (api_resources.NODES, "ns", ""),
        (api_resources.NODES, None, ""),
    ],
)
def test_cluster_scoped_kinds_have_no_namespace(
    kind: api_resources.Resource, namespace: str | None, expected: str
) -> None:
    found = write_types.target_of(kind, namespace, "n")
    assert found.kind == kind
    assert found.key == store_types.Key(kind.qualified, expected, "n")


def test_write_context_defaults_to_the_server_without_dry_run() -> None:
    options = write_types.WriteContext()
    assert options.user == authn.SERVER
    assert not options.dry_run
    assert options.field_validation == "Warn"
    outcome = write_types.WriteResult(b"{}")
    assert not outcome.gone
    assert not outcome.created
