"""`$(NAME)` is expanded as in Kubernetes."""

import pytest

from kilnwork.controlplane.node import expansion

VALUES = {"A": "1", "B": "$(A)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(EMPTY)", ""),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(A)"),
        ("$A $", "$A $"),
        ("$(A", "$(A"),
    ],
)
def test_references(text: str, expanded: str) -> None:
    assert expansion.expand(text, VALUES) == expanded
