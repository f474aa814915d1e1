"""Price the trades of one shard: `price.py` is a program of its own, which a step runs."""

import collections
import json
import os
from pathlib import Path

import kilnwork as kiln

given = json.loads(Path(os.environ["KILN_INPUT"]).read_text())
shard, market = kiln.Shard(given["shard"]), kiln.Snapshot(given["market"])
rates = {row["currency"]: int(row["rate"]) for row in market.records()}
books: collections.Counter[str] = collections.Counter()
for trade in shard.records():
    books[trade["book"]] += int(trade["amount"]) * rates[trade["currency"]]
print(f"shard {shard.index} of {shard.count}: {len(books)} books")
Path(os.environ["KILN_OUTPUT"]).write_text(json.dumps(books))
