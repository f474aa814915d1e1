"""A step that drives: it spawns tasks over shards with ordinary futures, and decides by their
results.

The set has one step. The step has its own worker, and its spawned tasks run on the group.
"""

from pathlib import Path
from typing import Any

import kilnwork as kiln

DATA = Path(__file__).parent.parent / "40-syncset"
TRADES = {path.name: path.read_text() for path in (DATA / "trades").iterdir()}


@kiln.task(retries=2)
def largest(shard: kiln.Shard) -> tuple[int, str]:
    """Return the largest trade of a shard."""
    return max((int(trade["amount"]), str(trade["id"])) for trade in shard.records())


@kiln.task
def count(shard: kiln.Shard, above: int) -> int:
    """Count the trades of a shard that are larger."""
    return sum(int(trade["amount"]) > above for trade in shard.records())


def drive(trades: dict[str, Any]) -> dict[str, Any]:
    """Find an amount that a tenth of all trades exceed, in rounds that are not known beforehand."""
    snapshot = kiln.Snapshot(trades)
    coarse = snapshot.shards()  # one for each file
    amount, name = max(future.result() for future in largest.map(coarse))
    low, high, rounds = 0, amount, 0
    fine = snapshot.shards(12, by="range")  # the same bytes, divided again
    while low < high:
        middle, rounds = (low + high) // 2, rounds + 1
        above = sum(future.result() for future in count.map(fine, [middle] * len(fine)))
        low, high = (middle + 1, high) if above > 12 else (low, middle)
    return {"largest": name, "limit": low, "rounds": rounds, "shards": [len(coarse), len(fine)]}


with kiln.SyncSet("driver", pond="driver-pond") as ss:
    ss.group("worker", replicas=1, most=3)  # elastic: the number may be changed while it runs
    step = ss.call(drive, trades=ss.data("trades", inline=TRADES))
    step.options(group=ss.controller())

if __name__ == "__main__":
    with kiln.connect():
        run = ss.submit()
        run.scale("worker", 3)
        result = run.result(timeout=90)
    print(result)
    amounts = sorted(
        (int(line.split(",")[3]) for text in TRADES.values() for line in text.splitlines()[1:]),
        reverse=True,
    )
    limit = result["limit"]
    assert sum(one > limit for one in amounts) <= 12 < sum(one > limit - 1 for one in amounts)
    assert result["shards"] == [3, 12]
    assert run.status().groups["worker"].desired == 3
    print("one step, and as many tasks as it needs: ok")
