"""The risk of a portfolio: plain functions on files. This module is sent to the workers."""

import collections
from typing import Any

import kilnwork as kiln

Document = dict[str, Any]


def price(shard: Document, market: Document) -> dict[str, int]:
    """Return the value of each book in a shard."""
    rates = {row["currency"]: int(row["rate"]) for row in kiln.Snapshot(market).records()}
    books: collections.Counter[str] = collections.Counter()
    for trade in kiln.Shard(shard).records():
        books[trade["book"]] += int(trade["amount"]) * rates[trade["currency"]]
    return dict(books)


def total(results: list[dict[str, int]], limit: int) -> Document:
    """Add the shards up, and count the books above the limit."""
    books: collections.Counter[str] = collections.Counter()
    for shard in results:
        books.update(shard)
    return {"books": dict(books), "breaches": sum(value > limit for value in books.values())}


def alert(total: Document) -> str:
    """Return the message for the trading desk."""
    return f"{total['breaches']} of {len(total['books'])} books are above the limit"


def file(total: Document) -> str:
    """Return the record of a day without alerts."""
    return f"{len(total['books'])} books, none above the limit"
