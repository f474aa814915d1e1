"""Declares the set, runs its flow in this process and then on a server, and compares the
results.
"""

from pathlib import Path

import risk

import kilnwork as kiln

DATA = Path(__file__).parent.parent / "40-syncset"
TRADES = {path.name: path.read_text() for path in (DATA / "trades").iterdir()}
RATES = {"rates.csv": (DATA / "market" / "rates.csv").read_text()}

with kiln.SyncSet("portfolio", pond="portfolio-pond", keep=2) as ss:
    ss.group("worker", replicas=2)
    market = ss.data("market", inline=RATES)
    trades = ss.data("trades", inline=TRADES, shards=8, by="range")
    limit = ss.param("limit", 35_000)

    priced = ss.each(trades, risk.price, market=market)
    priced.options(retries=2, timeout=60, max_in_flight=64)
    total = ss.join(priced, risk.total, limit=limit)
    report = ss.when(total.value.breaches > 0, risk.alert, otherwise=risk.file, total=total)
    report.options(name="report")

here = kiln.testing.run_set(ss)
print("in this process:", here.value)

try:
    kiln.SyncSet("broken").call(risk.alert, totals=total)
except kiln.BadOption as error:
    print(error)
else:
    raise AssertionError("an input that the function has not was accepted")

with kiln.connect(modules=[risk]):
    run = ss.submit()
    result = run.result(timeout=60)
print("on the server:  ", result)
print({name: step.succeeded for name, step in run.steps().items()})
assert result == here.value == "1 of 4 books are above the limit"
assert run.steps()["price"].succeeded == 8
assert run.status().snapshots["trades"].digest.startswith("sha256:")
