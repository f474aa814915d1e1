"""An executor of your own: it claims tasks of executor `counter` and counts the words of a text."""

import asyncio

from kilnwork import executor


async def count(task: executor.Task) -> dict[str, int]:
    words = task.payload["text"].split()
    counts: dict[str, int] = {}
    for number, word in enumerate(words):
        task.progress(number / len(words), f"at {word!r}")
        await asyncio.sleep(0)  # here others run, and here it is cancelled when it is killed
        counts[word] = counts.get(word, 0) + 1
    if not counts:
        raise executor.Failed("there is no word in it", reason="NoWords", retry=False)
    return counts


if __name__ == "__main__":
    executor.run("counter", count, slots=4)
