"""What a write is about."""

import pytest

from kilnwork.api import resource
from kilnwork.controlplane import objects
from kilnwork.controlplane.apiserver import authn, writes


@pytest.mark.parametrize(
    ("kind", "namespace", "expected"),
    [
        (resource.PODS, "ns", "ns"),
        (resource.PODS, None, ""),
        (resource.NODES, "ns", ""),
        (resource.NODES, None, ""),
    ],
)
def test_cluster_scoped_kinds_have_no_namespace(
    kind: resource.Resource, namespace: str | None, expected: str
) -> None:
    found = writes.target_of(kind, namespace, "n")
    assert found.kind == kind
    assert found.key == objects.Key(kind.qualified, expected, "n")


def test_write_context_defaults_to_the_server_without_dry_run() -> None:
    options = writes.WriteContext()
    assert options.user == authn.SERVER
    assert not options.dry_run
    assert options.field_validation == "Warn"
    outcome = writes.WriteResult(b"{}")
    assert not outcome.gone
    assert not outcome.created
