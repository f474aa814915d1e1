"""After random events in any order, a job ends and its counts are right."""

import random

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs import live_job_state
from support.job_stories import Story

_O = filejobs.PartOutcome
SEEDS = 6
STORIES = 60


def play(dice: random.Random) -> Story:
    story = Story(dice, parts=dice.choice([0, 1, 2, 5, 9]))
    for _ in range(dice.choice([20, 60, 150])):
        story.happen()
    story.calm = True
    return story


def finish(story: Story) -> None:
    for _ in range(3000):
        story.look()
        if story.job.stage is live_job_state.Stage.FINISHED and not story.under_way:
            return
        story.happen()
    raise AssertionError(
        f"no end: {story.job.stage!r} {story.job.busy} {story.job.tasks} {story.log[-40:]}"
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_event_sequence_ends_and_redrive_completes_it(seed: int) -> None:
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(STORIES):
        story = play(dice)
        if story.job.spec.suspend:
            story.resume()
        finish(story)
        if story.job.verdict is not _O.SUCCEEDED:
            story.redrive()
            finish(story)
        assert story.job.verdict is _O.SUCCEEDED, story.log[-30:]
        assert story.job.source.progress.records.total == story.manifest.lines
