"""Maps the rows of a CSV file in parallel. Run it with `python invoices.py`."""

import csv
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import kilnwork as kiln
from kilnwork import files

ROWS = 20_000
BAD_EVERY = 997


def invoice(row: dict[str, str]) -> dict[str, Any]:
    """Map one row; a price that is not a number raises, and the row is reported."""
    cents = int(row["quantity"]) * round(float(row["price"]) * 100)
    return {"id": int(row["id"]), "customer": row["customer"], "cents": cents}


def generate(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Write a file of known orders, the same in every run, with bad rows."""
    chance = random.Random(20261121)
    good: list[dict[str, Any]] = []
    bad: list[int] = []
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "customer", "quantity", "price"])
        for number in range(1, ROWS + 1):
            customer = chance.choice(["Kiln", "Clay, Inc.", "Oven\nand Sons", 'The "Pot"'])
            quantity, cents = chance.randint(1, 9), chance.randint(1, 99_999)
            wrong = number % BAD_EVERY == 0
            price = "free" if wrong else f"{cents / 100:.2f}"
            rows.writerow([number, customer, quantity, price])
            if wrong:
                bad.append(number)
            else:
                good.append({"id": number, "customer": customer, "cents": quantity * cents})
    return good, bad


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "orders.csv"
        expected, bad = generate(path)
        mapped = files.map(path, invoice, items_per_part=2_000)
        invoices = list(mapped)
        reported = [error["reason"] for error in mapped.errors]
        counts = mapped.records
        size = mapped.write(Path(directory) / "invoices.jsonl")
    assert invoices == expected, "the invoices differ from the orders that were generated"
    assert all("could not convert string to float: 'free'" in reason for reason in reported)
    assert (counts.total, counts.succeeded, counts.failed) == (ROWS, len(expected), len(bad))
    print(f"{counts.succeeded:,} invoices in order, {counts.failed} bad rows, {size:,} bytes: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        main()
