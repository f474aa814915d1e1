"""Runs Jobs that `kiln deploy weather_jobs.py` has deployed, and waits for their results."""

import datetime

from weather_jobs import report

import kilnwork as kiln

with kiln.connect():
    measured = kiln.job("measure").submit(offset=0.5)
    print(measured.name, measured.result(timeout=60))
    assert measured.result() == {"warmest": 6.5, "coldest": 4.5}
    assert [one["degrees"] for one in measured.results()] == [4.5, 6.5, 6.5]

    written = report.options(depends_on=[measured]).submit(datetime.date(2026, 1, 2), unit="F")
    text: str = written.result(timeout=60)
    print(text)
    assert text == report(datetime.date(2026, 1, 2), "F") == "Friday: bern, zurich in F"

    try:
        kiln.job("report").submit(day="2026-01-02T00:00:00Z", unit="K")
    except kiln.BadOption as error:
        print(error)
    else:
        raise AssertionError("a unit that is none was accepted")
