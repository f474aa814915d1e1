"""Tasks that wait for tasks: questions that are answered at the end of a task, or when time is up.

Used by the hub. Holds no answer, only who asked: after a restart of either end the worker asks
again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kilnwork.kit import ids

MAX_WAIT_S = 3600.0
"""Longest wait of one question; whoever wants to know longer asks again."""


@dataclass(slots=True, eq=False)
class Question:
    """Who wants to know about `task`, until when."""

    link: int
    serial: int
    task: ids.TaskId
    timer: asyncio.TimerHandle | None = None


class Questions:
    """Open questions by task. `answer(question, final)` is called once for each."""

    def __init__(self, answer: Callable[[Question], None]) -> None:
        self._answer = answer
        self._open: dict[ids.TaskId, set[Question]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def wait(self, question: Question, wait_s: float) -> None:
        """Answer at the end of the task, or after `wait_s`."""
        loop = asyncio.get_running_loop()
        delay = min(max(wait_s, 0.0), MAX_WAIT_S)
        question.timer = loop.call_later(delay, self._settle, question)
        self._open.setdefault(question.task, set()).add(question)

    def ended(self, task: ids.TaskId) -> None:
        """The task is final, on disk."""
        for question in list(self._open.get(task, ())):
            self._settle(question)

    def drop_link(self, link: int) -> None:
        """Whoever asked has gone."""
        for question in [q for asked in self._open.values() for q in asked if q.link == link]:
            self._forget(question)

    def clear(self) -> None:
        """Nobody will be answered any more."""
        for question in [q for asked in self._open.values() for q in asked]:
            self._forget(question)

    def _settle(self, question: Question) -> None:
        self._forget(question)
        self._answer(question)

    def _forget(self, question: Question) -> None:
        if question.timer is not None:
            question.timer.cancel()
        asked = self._open.get(question.task)
        if asked is not None:
            asked.discard(question)
            if not asked:
                del self._open[question.task]
