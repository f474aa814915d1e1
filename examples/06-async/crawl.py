"""Futures and tasks in asyncio: a crawl of a made-up web. Run it with `python crawl.py`."""

import asyncio
import sys

import kilnwork as kiln

PAGES = 40


@kiln.task
async def fetch(page: int) -> list[int]:
    """Fetch a page: an async function is a task as well, with an event loop of its own."""
    await asyncio.sleep(0.01)
    return [link for link in (2 * page, 2 * page + 1) if link <= PAGES]


async def crawl() -> list[int]:
    """Return all pages that page 1 leads to, each fetched once, as soon as a link to it is
    known.
    """
    known, pending = {1}, {fetch.submit(1)}
    while pending:
        found: set[int] = set()
        async for future in kiln.as_completed(pending):
            found.update(await future)
        pending = {fetch.submit(page) for page in found - known}
        known |= found
    return sorted(known)


async def main() -> None:
    ticks = 0

    async def tick() -> None:
        """The loop is free while tasks run elsewhere."""
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    assert await crawl() == list(range(1, PAGES + 1))
    assert await asyncio.wait_for(fetch.submit(1), timeout=30) == [2, 3]
    links = await asyncio.gather(*(fetch.submit(page) for page in (1, 2, 3)))
    assert links == [[2, 3], [4, 5], [6, 7]]
    ticking.cancel()
    assert ticks > 0, "the event loop stood still"
    print(f"{PAGES} pages crawled while the event loop went on: ok")


if __name__ == "__main__":
    with kiln.connect() if "--connect" in sys.argv else kiln.start():
        asyncio.run(main())
