"""Races of the blob collector with processes that renew or put the same blob: one of them wins.

Both learn the outcome. Schedules have up to three switches between the threads, line by line of the
real code.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kilnwork.data import local_blobs
from support import interleaving

HOUR = 3600.0
CONTENT = b"x" * 100


def old_blob(
    directory: Path, number: int, *, aside: bool = False
) -> tuple[local_blobs.Blobs, bytes, float]:
    """A blob that is two hours old, and the time one hour ago."""
    kept = local_blobs.Blobs(directory / str(number), durable=False)
    digest, _ = kept.put([CONTENT])
    path = kept.path(digest)
    now = path.stat().st_mtime
    os.utime(path, (now - 2 * HOUR, now - 2 * HOUR))
    if aside:
        path.rename(path.with_name(path.name + ".old"))
    return kept, digest, now - HOUR


def schedules(lines: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    """First one alone, then the other; one in the middle of the other; and with one more switch."""
    first, second = lines
    yield ()
    for i in range(first):
        yield (i,)
        for j in range(1, second):
            yield (i, j)
            if first + second < 40:
                yield from ((i, j, k) for k in range(1, min(first - i, 4)))


def interleaved(
    directory: Path, use: Callable[[local_blobs.Blobs, bytes], bool], *, aside: bool
) -> Iterator[tuple[local_blobs.Blobs, bytes, bool, bool]]:
    """Run each schedule; yield the directory, the digest, and the results of the user and the
    collector."""
    kept, digest, before = old_blob(directory, -1)
    trial = interleaving.Interleaving(local_blobs, ())
    trial.run(lambda: use(kept, digest), lambda: kept.discard(digest, before=before))
    lines = (trial.lines[0] + 5, trial.lines[1] + 5)
    for order in (0, 1):
        plan = schedules(lines if order == 0 else (lines[1], lines[0]))
        for number, schedule in enumerate(plan):
            kept, digest, before = old_blob(directory, number, aside=aside)
            calls = [lambda: use(kept, digest), lambda: kept.discard(digest, before=before)]  # noqa: B023
            results = interleaving.Interleaving(local_blobs, schedule).run(
                calls[order], calls[1 - order]
            )
            used, discarded = results if order == 0 else results[::-1]
            yield kept, digest, used, discarded
            for path in sorted(kept.directory.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()


def count(items: Iterator[object]) -> int:
    return sum(1 for _ in items)


@pytest.mark.parametrize("place", ["in place", "left aside"])
def test_touch_wins_against_collector_or_reports_missing(tmp_path: Path, place: str) -> None:
    outcomes = set()
    for kept, digest, renewed, discarded in interleaved(
        tmp_path, local_blobs.Blobs.touch, aside=place == "left aside"
    ):
        assert isinstance(renewed, bool)
        assert isinstance(discarded, bool)
        assert renewed != discarded
        assert kept.path(digest).exists() == renewed
        if renewed:
            entry = next(kept.entries())
            assert entry == (digest, entry.modified, False)
            assert bytes(kept.get(digest)) == CONTENT
            assert not kept.discard(digest, before=entry.modified - HOUR)
        outcomes.add(renewed)
    assert outcomes == {True, False}


def test_put_blob_exists_despite_collector(tmp_path: Path) -> None:
    def put(kept: local_blobs.Blobs, digest: bytes) -> bool:
        return kept.put([CONTENT]) == (digest, len(CONTENT))

    for kept, digest, was_put, _ in interleaved(tmp_path, put, aside=False):
        assert was_put is True
        assert bytes(kept.get(digest)) == CONTENT
        entries = list(kept.entries())
        assert [(entry.digest, entry.aside) for entry in entries] == [(digest, False)]
        assert not kept.discard(digest, before=entries[0].modified - 60)


def test_reader_finds_renewed_blob_despite_collector(tmp_path: Path) -> None:
    """It was renewed before it was referred to, so the collector restores it; it is never
    missing."""

    def read(kept: local_blobs.Blobs, digest: bytes) -> bool:
        return bytes(kept.get(digest)) == CONTENT

    kept, digest, before = old_blob(tmp_path, -1)
    trial = interleaving.Interleaving(local_blobs, ())
    trial.run(lambda: read(kept, digest), lambda: kept.discard(digest, before=before - 2 * HOUR))
    for first, second in itertools.product(range(trial.lines[1]), range(trial.lines[0])):
        kept, digest, before = old_blob(tmp_path, 0)
        results = interleaving.Interleaving(local_blobs, (first, second)).run(
            lambda: kept.discard(digest, before=before - 2 * HOUR),  # noqa: B023
            lambda: read(kept, digest),  # noqa: B023
        )
        assert results == (False, True)
        kept.path(digest).unlink()
