"""Options in the query: what makes no sense is refused, with the kind of the options."""

import pytest

from kilnwork.controlplane.apiserver import options, requests, statuses


@pytest.mark.parametrize("name", ["dryRun", "fieldValidation"])
@pytest.mark.parametrize(
    ("verb", "kind"), [("create", "CreateOptions"), ("delete", "DeleteOptions")]
)
def test_unknown_option_values_are_invalid(name: str, verb: str, kind: str) -> None:
    query = requests.Query({name: "Perhaps"})
    with pytest.raises(statuses.StatusError, match="Unsupported value") as caught:
        options.WriteOptions.parse(query, verb=verb)
    assert (caught.value.code, caught.value.details["kind"]) == (422, kind)


def test_write_options_have_defaults() -> None:
    found = options.WriteOptions.parse(requests.Query({}), verb="patch")
    assert found == options.WriteOptions(dry_run=False, field_validation="Warn", manager="")
    listed = options.ListOptions.parse(requests.Query({"limit": "-1"}), watch=False)
    assert (listed.limit, listed.initial_events) == (0, None)
