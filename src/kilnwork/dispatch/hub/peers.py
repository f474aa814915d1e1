"""Everybody that is connected: who is let in, who hears what they say, what is sent to them.

Used by the hub, which carries out batches through it. A connection is a `links.Link`; behind the
gate it is an agent's, a driver's or a slot's, and each kind has its taker. Tells the machine, and
decides nothing.
"""

import logging
from collections.abc import Callable
from typing import Any

from kilnwork.channel import messages, ports
from kilnwork.dispatch import errors
from kilnwork.dispatch.hub import (
    agents,
    attempt_logs,
    authentication,
    commits,
    delivery,
    links,
    submitters,
)
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

Takers = dict[type, Callable[[links.Link, Any], None]]


class Peers:
    """`links.Owner`. `greeted`: drivers that were let in since the start. `view`: as the hub's."""

    def __init__(
        self,
        engine: commits.Core,
        *,
        logs: attempt_logs.AttemptLogs,
        verifier: ports.TokenVerifier,
        crew: coroutines.Crew,
        terms: delivery.Terms,
        view: agents.View,
    ) -> None:
        self.greeted = 0
        self._core = engine
        self._links: dict[int, links.Link] = {}
        self._numbers = 0
        self._delivery = delivery.Delivery(self._links, logs, terms)
        self.prepare: Callable[[instructions.Batch], delivery.Outgoing] = self._delivery.prepare
        """Makes the frames of a batch, while the store is busy."""
        self._gate = authentication.Gate(verifier, crew, self._believed)
        self._agents = agents.Agents(engine, self._gate, logs, view)
        self._submitters = submitters.Submitters(engine, logs)
        self._takers: Takers = {
            messages.Hello: self._agents.received,
            messages.DriverHello: self._submitters.from_driver,
            messages.SlotHello: self._submitters.from_slot,
        }
        self._joins: Takers = {
            messages.Hello: self._agents.join,
            messages.DriverHello: self._submitters.attach,
            messages.SlotHello: self._submitters.join,
        }
        self._held_back: list[links.Link] = []

    @property
    def drivers(self) -> int:
        """How many are connected."""
        return sum(isinstance(link.hello, messages.DriverHello) for link in self._links.values())

    def start(self, epoch: int) -> None:
        """The store is ours, in this epoch."""
        self._delivery.epoch = self._gate.epoch = epoch

    def new_link(self) -> links.Link:
        """The protocol of one more connection, from wherever it comes."""
        self._numbers += 1
        link = links.Link(self, self._numbers)
        self._links[link.number] = link
        return link

    def hello(self, link: links.Link, message: messages.AnyHello) -> None:
        """Check who it is, then let the machine decide what it keeps."""
        self._gate.check(link, message)

    def received(self, link: links.Link, message: messages.FromPeer) -> None:
        """A message of a peer that was let in."""
        try:
            self._takers[type(link.hello)](link, message)
        except errors.IllegalTransition as error:
            log.exception("the machine refused a move", extra={"link": link.number})
            link.refuse("Internal", str(error).split("\n", 1)[0], retry=True)
        except errors.HubStopped:
            link.close()

    def batch_ended(self, link: links.Link) -> None:
        """Confirm output, and read no more while too much waits for the disk."""
        self._agents.batch_ended(link)
        if self._core.crowded:
            link.hold_back("crowded")
            self._held_back.append(link)

    def closed(self, link: links.Link) -> None:
        """The peer may come back; until then it keeps what it has."""
        self._links.pop(link.number, None)
        self._agents.gone(link)
        try:
            self._core.tell(inputs.LinkClosed(link.number))
        except errors.HubStopped:
            return

    def send(self, batch: instructions.Batch, prepared: delivery.Outgoing) -> None:
        """The batch is kept: send what was prepared, answer who asked, read on."""
        self._delivery.release(prepared)
        if self._agents.asked:
            for task in batch.finals:
                self._agents.ended(task.id)
        if self._held_back:
            held_back, self._held_back = self._held_back, []
            for link in held_back:
                link.let_go("crowded")

    def dismiss(self, why: str) -> None:
        """No dispatcher will follow soon: peers need not wait for one."""
        self._delivery.confirm()
        for link in list(self._links.values()):
            link.refuse(messages.LEAVING, why, retry=False)

    def disconnect(self) -> None:
        """Close all links, and answer nobody any more."""
        self._agents.clear()
        self._delivery.confirm()
        for link in list(self._links.values()):
            link.close()

    def _believed(self, link: links.Link, message: messages.AnyHello) -> None:
        if link.number in self._links:
            self.greeted += isinstance(message, messages.DriverHello)
            self._joins[type(message)](link, message)
