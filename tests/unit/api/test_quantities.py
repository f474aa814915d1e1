"""Quantities mean what Kubernetes reads, and its error texts come back for the others."""

import decimal

import pytest

from kilnwork.api import quantities


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", "1"),
        ("500m", "0.5"),
        ("1.5Gi", str(3 * 2**29)),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("1E", "1e18"),
        ("10e3", "10000"),
        ("-2n", "-2e-9"),
        (" 7 ", "7"),
    ],
)
def test_valid_quantity_is_parsed(text: str, number: str) -> None:
    assert quantities.parse(text) == decimal.Decimal(number)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "regular expression"),
        ("1 Gi", "regular expression"),
        ("1Kx", "regular"),
        ("1ki", "suffix"),
    ],
)
def test_an_invalid_quantity_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantities.parse(text)


def test_amount_of_an_invalid_quantity_is_0() -> None:
    assert quantities.amount("1ki") == 0
    assert quantities.amount("2Mi") == 2 * 1024**2
