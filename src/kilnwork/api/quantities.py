"""Resource quantities of Kubernetes: `500m`, `1.5Gi`, `10e3`. No I/O.

Used by the API server, which refuses invalid quantities, by the scheduler and by nodes. Rules and
error texts are those of k8s.io/apimachinery pkg/api/resource, ParseQuantity.
"""

import decimal
import re

_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_SUFFIXES = {
    **{suffix: decimal.Decimal(1000) ** n for n, suffix in enumerate("num", start=-3)},
    "": decimal.Decimal(1),
    **{suffix: decimal.Decimal(1000) ** n for n, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": decimal.Decimal(1024) ** n for n, suffix in enumerate("KMGTPE", start=1)},
}
_WRONG_FORM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_WRONG_NUMBER = "unable to parse numeric part of quantity"


def parse(text: str) -> decimal.Decimal:
    """Return the number for a quantity; raises ValueError with Go's error text for an invalid
    one."""
    text = text.strip()
    found = _FORM.fullmatch(text)
    if found is None or not text:
        raise ValueError(_WRONG_FORM)
    number, suffix = found.groups()
    try:
        value = decimal.Decimal(number if number.strip("+-") else 0)
        if _EXPONENT.fullmatch(suffix):
            return value.scaleb(int(suffix[1:]))
        if suffix not in _SUFFIXES:
            raise ValueError(_WRONG_SUFFIX)
        return value * _SUFFIXES[suffix]
    except decimal.DecimalException as error:
        raise ValueError(_WRONG_NUMBER) from error


def amount(text: str) -> decimal.Decimal:
    """Return the number for a quantity; 0 for an invalid one, which no stored object has."""
    try:
        return parse(text)
    except ValueError:
        return decimal.Decimal(0)
