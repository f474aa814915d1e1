"""Leases of a pond as the REST API takes and shows them."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import names, pond_views

DIGEST = "sha256:" + "0" * 64


def request(*snapshots: dict[str, Any]) -> pond_views.LeaseRequest:
    return msgspec.convert({"snapshots": snapshots}, pond_views.LeaseRequest)


def test_snapshot_of_a_lease_defaults_to_read() -> None:
    (found,) = request({"name": "a", "from": {"source": "s"}}).snapshots
    assert found.from_ is not None
    assert (found.from_.source, found.access, found.digest) == ("s", "read", None)
    assert request({"name": "a", "access": "copy"}).snapshots[0].access == "copy"


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": DIGEST[:-1]},
        {"digest": DIGEST.upper()},
        {"digest": f"{DIGEST}0"},
        {"access": "write"},
        {"name": "A"},
        {"sources": "a"},
    ],
)
def test_invalid_lease_snapshot_is_refused(fields: dict[str, str]) -> None:
    request({"name": "a", "digest": DIGEST})
    with pytest.raises(msgspec.ValidationError):
        request({"name": "a", **fields})


@pytest.mark.parametrize(
    ("count", "is_usable"),
    [
        (0, False),
        (1, True),
        (pond_views.MAX_SNAPSHOTS, True),
        (pond_views.MAX_SNAPSHOTS + 1, False),
    ],
)
def test_number_of_snapshots_of_a_lease_is_bounded(count: int, is_usable: bool) -> None:  # noqa: FBT001
    snapshots = [{"name": f"a{number}"} for number in range(count)]
    if is_usable:
        assert len(request(*snapshots).snapshots) == count
    else:
        with pytest.raises(msgspec.ValidationError):
            request(*snapshots)


def test_lease_applies_to_all_nodes_by_default() -> None:
    assert request({"name": "a"}).nodes is None


def test_user_lease_names_cannot_be_sync_set_names() -> None:
    assert not names.is_dns_label(f"{pond_views.LEASE_PREFIX}a")
    assert names.is_dns_label("a")


def test_views_are_encoded_in_camel_case() -> None:
    view = pond_views.LeaseNodeView(ready=False, bytes_done=1, bytes_total=2)
    assert msgspec.to_builtins(view)["bytesDone"] == 1
