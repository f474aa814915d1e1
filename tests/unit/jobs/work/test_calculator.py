"""The calculator accepts the same input as the source's worker and writes the same output."""

import json
import math
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from kilnwork.data import errors
from kilnwork.jobs.work import calculator

GOLDEN = Path(__file__).parent / "golden"
OPERATORS = ["+", "-", "*", "/", "add", "subtract", "times", "divide"]


def computed(**fields: object) -> str:
    return calculator.calculate(json.dumps(fields).encode()).decode()


def test_source_sample_gives_byte_equal_result() -> None:
    lines = (GOLDEN / "sample.jsonl").read_bytes().splitlines()
    found = b"".join(calculator.calculate(line) + b"\n" for line in lines)
    assert found == (GOLDEN / "sample.results.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3123.0, "3123.0"),
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (-1.0, "-1.0"),
        (0.1, "0.1"),
        (1 / 3, "0.33333333333333331"),
        (3123 / 321311, "0.009719555197301057"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e15, "1E+15"),
        (999999999999999.0, "999999999999999.0"),
        (1234567890123456.0, "1234567890123456.0"),
        (12345678901234568.0, "12345678901234568.0"),
        (1e17, "1E+17"),
        (123456789012345680.0, "1.2345678901234568E+17"),
        (1e100, "1E+100"),
        (1e-4, "0.0001"),
        (0.00012345678901234567, "0.00012345678901234567"),
        (9.9999999999999991e-05, "9.9999999999999991E-05"),
        (123456789.1234567, "123456789.1234567"),
        (-1234567890.125, "-1234567890.125"),
        (999999999999999.88, "999999999999999.88"),
        (1e-5, "1E-05"),
        (1.5e-7, "1.5E-07"),
        (5e-324, "4.94065645841247E-324"),
        (1.7976931348623157e308, "1.7976931348623157E+308"),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (math.nan, '"NaN"'),
    ],
)
def test_numbers_are_written_in_dotnet_format_r(value: float, text: str) -> None:
    assert calculator.number(value) == text


def as_the_rule_says(value: float) -> str:
    """The rule without optimizations: `%.15g`, else `%.17g`, upper case, `.0` if needed."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "0.0"
    text = f"{value:.15g}"
    if float(text) != value:
        text = f"{value:.17g}"
    text = text.upper()
    return text if "." in text or "E" in text else text + ".0"


@hypothesis.settings(max_examples=1000)
@hypothesis.given(
    st.floats()
    | st.floats(-1e16, 1e16)
    | st.floats(-1e-3, 1e-3)
    | st.integers(-(2**60), 2**60).map(float)
    | st.decimals(-(10**6), 10**6, places=6).map(float)
)
def test_any_number_is_written_by_the_rule(value: float) -> None:
    assert calculator.number(value) == as_the_rule_says(value)


@hypothesis.given(st.text(), st.floats(), st.floats(), st.sampled_from(OPERATORS))
def test_any_result_is_written_by_the_rules(
    ident: str, first: float, second: float, op: str
) -> None:
    hypothesis.assume(not any(0xD800 <= ord(char) <= 0xDFFF for char in ident))
    fields = {"id": ident, "value1": _sent(first), "value2": _sent(second), "op": op}
    found = computed(**fields)
    expected = _expected(first, second, op)
    names = ("value1", first), ("value2", second)
    middle = "".join(f'"{name}":{as_the_rule_says(value)},' for name, value in names)
    assert found.endswith(f'{middle}"op":"{op}","result":{as_the_rule_says(expected)}}}')
    assert json.loads(found)["id"] == ident


def _sent(value: float) -> object:
    """A value that is not a JSON number is sent as a string, which is accepted."""
    return value if math.isfinite(value) else as_the_rule_says(value).strip('"')


def _expected(first: float, second: float, op: str) -> float:
    if op in ("+", "add"):
        return first + second
    if op in ("-", "subtract"):
        return first - second
    if op in ("*", "times"):
        return first * second
    if second != 0:
        return first / second
    if math.isnan(first) or first == 0:
        return math.nan
    return math.copysign(math.inf, first) * math.copysign(1, second)


def test_division_by_zero_gives_ieee_754_result() -> None:
    assert computed(value1=1, value2=0, op="/").endswith('"result":"Infinity"}')
    assert computed(value1=-1, value2=0, op="/").endswith('"result":"-Infinity"}')
    assert computed(value1=0, value2=0, op="divide").endswith('"result":"NaN"}')


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("{}", '{"id":null,"value1":0.0,"value2":0.0,"op":null,"result":0.0}'),
        (
            '{"id":"a","value1":1,"value2":2,"op":"%"}',
            '{"id":"a","value1":1.0,"value2":2.0,"op":"%","result":0.0}',
        ),
        (
            '{"op":"+","value2":"1,000.5","value1":" 2e1 ","id":12.50,"extra":[{"é":1}]}',
            '{"id":"12.50","value1":20.0,"value2":1000.5,"op":"+","result":1020.5}',
        ),
        (
            '{"id":"ä\\"\\\\\\n\\u0001","value1":-0.0,"op":"add"}',
            '{"id":"ä\\"\\\\\\n\\u0001","value1":0.0,"value2":0.0,"op":"add","result":0.0}',
        ),
    ],
)
def test_lenient_records_are_accepted(line: str, result: str) -> None:
    assert calculator.calculate(line.encode()).decode() == result


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[]",
        b"1",
        b"",
        b"{",
        b'{"value1":null}',
        b'{"value1":"x"}',
        b'{"value1":""}',
        b'{"value1":true}',
        b'{"value1":"1_0"}',
        b'{"value1":"inf"}',
        b'{"value1":"1e999"}',
        b'{"value1":1e999}',
        b'{"id":{}}',
        b'{"id":"\xff"}',
        b'{"id":"a"} x',
        b"\0",
        b'{"value1":%b}' % (b"9" * 400),
        b'{"value1":%b}' % (b"9" * 4300),
        b'{"value1":%b}' % (b"9" * 4301),
        '{"value1":"٣"}'.encode(),
        b'{"id":' * 100_000,
        b'{"other":%b%b}' % (b"[" * 100_000, b"]" * 100_000),
    ],
)
def test_invalid_records_are_refused(line: bytes) -> None:
    with pytest.raises(errors.BadRecord):
        calculator.calculate(line)
