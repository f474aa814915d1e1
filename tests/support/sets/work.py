"""Functions of the flow of `run`: workers import them, and one process calls them for comparison.

On a server each start is noted with the number of its attempt (`programs.effects`) and takes a
while, so that kills interrupt it.
"""

import hashlib
import os
import time
from typing import Any

import kilnwork as kiln
from support.programs import effects


def price(shard: dict[str, Any], pause_s: float) -> dict[str, Any]:
    """Read a shard; return a result that depends on each of its bytes."""
    read = kiln.Shard(shard)
    _begun(f"price-{read.index}", pause_s)
    content = b"".join(path.read_bytes() for path in read.files)
    return {
        "index": read.index,
        "bytes": len(content),
        "digest": hashlib.sha256(content).hexdigest(),
        "mean": sum(content) / len(content),
    }


def total(parts: list[dict[str, Any]], digest: str) -> dict[str, Any]:
    """Combine the shards in their order."""
    _begun("total", 0.0)
    return {"snapshot": digest, "mean": sum(part["mean"] for part in parts), "parts": parts}


def _begun(node: str, pause_s: float) -> None:
    if effects.VARIABLE in os.environ:
        here = kiln.context()
        effects.note("start", node, here.task_id, here.run, here.attempt)
        time.sleep(pause_s)
