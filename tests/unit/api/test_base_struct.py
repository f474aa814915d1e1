"""The common behaviour of all structs that users write."""

import msgspec
import pytest

from kilnwork.api import base_struct


class Written(base_struct.Wire, frozen=True):
    """A struct like those in the modules of kinds."""

    run_after: int = 0
    name: str = ""


def test_fields_are_encoded_in_camel_case() -> None:
    assert msgspec.convert({"runAfter": 1}, Written).run_after == 1
    assert msgspec.to_builtins(Written(run_after=1)) == {"runAfter": 1}


def test_default_values_are_omitted() -> None:
    assert msgspec.to_builtins(Written()) == {}


@pytest.mark.parametrize("field", ["run_after", "runafter", "other"])
def test_an_unknown_field_is_refused(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: 1}, Written)


def test_structs_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Written().name = "a"  # type: ignore[misc]
