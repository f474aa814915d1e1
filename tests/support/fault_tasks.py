"""Task functions that note each start, for the fault tests.

Slots import them by name. A note is one line `TASK RUN ATTEMPT` appended to the file
KILN_FAULT_NOTES in one write; a line that occurs twice means code that ran twice.
"""

import os
import time

import kilnwork as kiln

LOSSES = 20
task = kiln.task(max_losses=LOSSES)


def note() -> None:
    """Append a note for this attempt."""
    context = kiln.context()
    line = f"{context.task_id} {context.run} {context.attempt}\n"
    file = os.open(os.environ["KILN_FAULT_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@task
def leaf(number: int, millis: int) -> int:
    note()
    time.sleep(millis / 1000)
    return number * number


@task
def fan(count: int) -> int:
    """Wait for many children at once."""
    note()
    futures = [leaf.submit(number, number % 20) for number in range(count)]
    return sum(future.result() for future in futures)


@task
def relay(left: int) -> int | kiln.Future[int]:
    note()
    time.sleep(0.01)
    return relay.submit(left - 1) if left else 0


@task
def descend(left: int) -> int:
    note()
    time.sleep(0.005)
    return descend.submit(left - 1).result() + 1 if left else 0


@task
def tree(n: int) -> int:
    """Compute a Fibonacci number with two awaited children per node."""
    note()
    if n < 2:
        time.sleep(0.01)
        return n
    return sum(kiln.gather(tree.submit(n - 1), tree.submit(n - 2)).result())


@task
def recursion(depth: int, n: int) -> list[int]:
    note()
    return kiln.gather(descend.submit(depth), tree.submit(n)).result()


@task
def words(part: kiln.Part) -> dict[str, int]:
    note()
    time.sleep(0.03)
    counts: dict[str, int] = {}
    for line in part:
        for word in line.split():
            counts[word] = counts.get(word, 0) + 1
    return counts


@task
def merge(counts: list[dict[str, int]]) -> dict[str, int]:
    note()
    merged: dict[str, int] = {}
    for each in counts:
        for word, count in each.items():
            merged[word] = merged.get(word, 0) + count
    return merged


@task
def mapreduce(path: str, parts: int) -> kiln.Future[dict[str, int]]:
    note()
    return merge.submit(words.map(kiln.split(path, parts)))
