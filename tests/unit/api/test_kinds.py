"""The kinds of kilnwork: one group, and unique names."""

from kilnwork.api import kinds


def test_all_kinds_are_of_one_group_and_category() -> None:
    assert {kind.api_version for kind in kinds.OURS} == {"kilnwork.dev/v1alpha1"}
    assert {kind.categories for kind in kinds.OURS} == {("kiln",)}
    assert all(kind.namespaced for kind in kinds.OURS)


def test_plurals_and_short_names_are_unique_among_all_resources() -> None:
    listed = [kind.plural for kind in kinds.ALL if kind.group in ("", kinds.GROUP)]
    listed += [name for kind in kinds.ALL for name in kind.short_names]
    assert len(listed) == len(set(listed))


def test_plurals_are_in_lower_case() -> None:
    assert [kind.plural for kind in kinds.OURS] == [f"{k.kind.lower()}s" for k in kinds.OURS]
