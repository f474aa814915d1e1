"""Add up the orders of a shard, and leave a line as a record of this call."""

import json
import os
from pathlib import Path

import kilnwork as kiln

shard = kiln.Shard(json.loads(Path(os.environ["KILN_INPUT"]).read_text())["shard"])
print(f"shard {shard.index} is added up")
Path(os.environ["KILN_OUTPUT"]).write_text(str(sum(int(line) for line in shard.records())))
