"""The queue of one cluster: decides which of its waiting tasks is next. No I/O.

Used by the machine; `assignment` chooses where the task runs. Highest priority first. Within one
priority, sources (drivers' sessions, each with the children of its tasks) take turns, so that a
long list of one source does not hold up the others. Within one source, first come, first served.
"""

from bisect import insort
from collections import deque
from typing import Generic, Protocol, TypeVar


class Queueable(Protocol):
    """An item of a `Queue`, which alone sets the item's `ticket`.

    `template`: None for a command, which needs no slot process.
    """

    ticket: int | None
    source: bytes

    @property
    def template(self) -> object: ...


P = TypeVar("P", bound=Queueable)


class _Line(Generic[P]):
    """The items of one source in a queue, by rising ticket; `low` is the ticket of the first entry.

    An entry whose ticket is not its item's `ticket` has left the queue. `commands`: the commands
    among the items, with their tickets, so that they are found behind any number of calls.
    """

    __slots__ = ("commands", "low", "source", "waiting")

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.waiting: deque[P] = deque()
        self.commands: deque[tuple[int, P]] = deque()
        self.low = 0

    def command(self) -> P | None:
        """Return the first command of the source; it stays queued."""
        commands = self.commands
        while commands:
            ticket, item = commands[0]
            if item.ticket == ticket:
                return item
            commands.popleft()
        return None


class _Level(Generic[P]):
    """The items of one priority in a queue: lines by source, in the order of their turns."""

    __slots__ = ("lines", "turns")

    def __init__(self) -> None:
        self.lines: dict[bytes, _Line[P]] = {}
        self.turns: deque[_Line[P]] = deque()

    def line(self, source: bytes) -> _Line[P]:
        """Return the line of a source, which is added at the end of the turns if new."""
        line = self.lines.get(source)
        if line is None:
            line = self.lines[source] = _Line(source)
            self.turns.append(line)
        return line

    def pop(self) -> P | None:
        """Remove and return the next item, or return None; its source then waits for its turn
        behind all others.
        """
        turns = self.turns
        while turns:
            line = turns[0]
            waiting = line.waiting
            while waiting:
                item = waiting.popleft()
                ticket = line.low
                line.low = ticket + 1
                # Otherwise this entry is void: its item has left the queue, and may be in the queue
                # again.
                if item.ticket == ticket:
                    if line.commands and line.commands[0][1] is item:
                        line.commands.popleft()
                    if len(turns) > 1:
                        turns.rotate(-1)
                    return item
            turns.popleft()
            del self.lines[line.source]
        return None

    def command(self) -> P | None:
        """Return the first command in the order of turns; it stays queued, its source goes to the
        end.
        """
        for line in list(self.turns):
            item = line.command()
            if item is not None:
                self.turns.remove(line)
                self.turns.append(line)
                return item
        return None


class Queue(Generic[P]):
    """The waiting tasks of one cluster. Each waits with a ticket; leaving the queue clears it."""

    __slots__ = ("_levels", "_order", "_size", "commands")

    def __init__(self) -> None:
        self.commands = 0
        """Number of waiting items that are commands."""
        self._levels: dict[int, _Level[P]] = {}
        self._order: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, item: P, *, priority: int) -> None:
        """Add an item behind all items of the same priority and source."""
        # This repeats `_level` and `line` without the cost of their calls: every task passes here.
        level = self._levels.get(-priority)
        if level is None:
            level = self._level(priority)
        line = level.lines.get(item.source)
        if line is None:
            line = level.line(item.source)
        waiting = line.waiting
        item.ticket = line.low + len(waiting)
        waiting.append(item)
        self._size += 1
        if item.template is None:
            line.commands.append((item.ticket, item))
            self.commands += 1

    def push_front(self, item: P, *, priority: int) -> None:
        """Add an item before all items of the same priority; it had its turn before it was taken
        back.
        """
        level = self._level(priority)
        line = level.line(item.source)
        line.low -= 1
        item.ticket = line.low
        line.waiting.appendleft(item)
        # `pop` took its source's turn for this item: the source gets it back.
        if level.turns[0] is not line:
            level.turns.remove(line)
            level.turns.appendleft(line)
        self._size += 1
        if item.template is None:
            line.commands.appendleft((item.ticket, item))
            self.commands += 1

    def remove(self, item: P) -> None:
        """Remove an item; does nothing if the item is not in the queue."""
        # Its entry stays and is void from now on: removing it from the middle would need a search.
        if item.ticket is not None:
            self._leave(item)

    def pop_command(self) -> P | None:
        """Remove and return the next command, even from behind calls, or return None."""
        for order in self._order if self.commands else ():
            item = self._levels[order].command()
            if item is not None:
                self._leave(item)
                return item
        return None

    def pop(self) -> P | None:
        """Remove and return the next item, or return None."""
        order = self._order
        while order:
            item = self._levels[order[0]].pop()
            if item is not None:
                self._leave(item)
                return item
            del self._levels[order.pop(0)]
        return None

    def _leave(self, item: P) -> None:
        item.ticket = None
        self._size -= 1
        if item.template is None:
            self.commands -= 1

    def ahead(self, item: P, *, priority: int) -> int:
        """Return how many items are queued before `item`; items that have left the queue may be
        counted.
        """
        if item.ticket is None:
            return 0
        before = sum(
            len(line.waiting)
            for higher in self._order
            if higher < -priority
            for line in self._levels[higher].turns
        )
        level = self._levels[-priority]
        own = item.ticket - level.lines[item.source].low
        seen_own = False
        for line in level.turns:
            if line.source == item.source:
                seen_own = True
            else:
                # A source whose turn comes first is served once more before this item.
                before += min(len(line.waiting), own if seen_own else own + 1)
        return min(before + own, self._size - 1)

    def _level(self, priority: int) -> _Level[P]:
        level = self._levels.get(-priority)
        if level is None:
            level = self._levels[-priority] = _Level()
            insort(self._order, -priority)
        return level
