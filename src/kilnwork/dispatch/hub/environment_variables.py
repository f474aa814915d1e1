"""Serves the values of variables that tasks take from Secrets and ConfigMaps.

Used by `agents` and `submitters`. Values go from their source to the process that has the attempt,
over its link, and nowhere else: not to the machine, the journal or a log. An attempt gets only the
values that its own spec names, from its own namespace.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from kilnwork.api import env_sources, reasons
from kilnwork.channel import messages
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import child_request_rules, commits, links
from kilnwork.dispatch.machine import inputs, records
from kilnwork.kit import backoff, coroutines, errors

log = logging.getLogger(__name__)

KEPT_S = 5.0
"""Seconds for which an object that was read is used for other attempts: thousands of attempts may
start in a second, and a changed Secret reaches those that start later.
"""

RETRY = backoff.Backoff(0.5, 10.0)
"""Delays between tries to read an object, for as long as the attempt is held."""


NOWHERE = "this dispatcher has no Secrets and no ConfigMaps: kiln.start(secrets=DIRECTORY) has"


class VariableSource(Protocol):
    """Reads Secrets and ConfigMaps. Implemented by `cli.wiring` and `dispatch.local_secrets`."""

    async def read(
        self, namespace: str, source: env_sources.VariableSource
    ) -> Mapping[str, bytes] | None:
        """Return the data of a Secret or ConfigMap, or None if it does not exist.

        Raises KilnError if the caller should try again later.
        """
        ...


class Variables:
    """Responds to requests for values of variables (`GetVariables`).

    `source`: the reader of Secrets and ConfigMaps. None: every request is refused.
    """

    def __init__(
        self,
        core: commits.Core,
        source: VariableSource | None,
        background: coroutines.BackgroundWork,
    ) -> None:
        self._core = core
        self._source = source
        self._background = background
        self._read: dict[
            tuple[str, env_sources.VariableSource], tuple[float, Mapping[str, bytes]]
        ] = {}

    def handle(self, link: links.Link, message: messages.GetVariables) -> None:
        """Handle the request of a worker or slot for the variables of an attempt that it has."""
        task = self._core.machine.held_by(link.number, message.ref)
        if task is None:
            text = f"attempt {message.ref} is over"
            link.respond(message.serial, 409, child_request_rules.error_response(text))
            return
        self._background.start("variables", self._respond(link, message))

    async def _respond(self, link: links.Link, message: messages.GetVariables) -> None:
        """Read the values and respond, unless the attempt or its link ends first."""
        for failures in itertools.count():
            await asyncio.sleep(RETRY.delay_s(failures))
            # Checked in each round: reading may take minutes, and the attempt may have ended.
            task = self._core.machine.held_by(link.number, message.ref)
            if task is None:
                return
            try:
                found = await self._values(task)
                break
            except errors.KilnError as error:
                facts = {"attempt": str(message.ref), "why": str(error)}
                log.warning("cannot read the variables of an attempt; trying again", extra=facts)
                self._observe(link, message, reasons.Reason.WAITING_FOR_VARIABLES, str(error))
        if failures:
            self._observe(link, message, reasons.Reason.STARTED, "")
        if isinstance(found, env_sources.Unusable):
            link.respond(
                message.serial,
                env_sources.MISSING,
                child_request_rules.error_response(found.message),
            )
        else:
            link.respond(message.serial, env_sources.FOUND, msgspec.json.encode(found))

    def _observe(
        self,
        link: links.Link,
        message: messages.GetVariables,
        reason: reasons.Reason,
        text: str,
    ) -> None:
        """Show in the task's status why it waits for values, or that it no longer waits."""
        seen = model.Observed(str(reason), text)
        with contextlib.suppress(dispatch_errors.HubStopped):
            self._core.apply(inputs.AttemptObserved(link.number, message.ref, seen))

    async def _values(self, task: records.Task) -> dict[str, str] | env_sources.Unusable:
        namespace, env = task.namespace, task.spec.env
        if self._source is None:
            return env_sources.Unusable(NOWHERE)
        found = {
            one: await self._data(self._source, namespace, one) for one in env_sources.sources(env)
        }
        return env_sources.resolve(env, found, namespace)

    async def _data(
        self, reader: VariableSource, namespace: str, source: env_sources.VariableSource
    ) -> Mapping[str, bytes] | None:
        """Return the data of a Secret or ConfigMap, at most a few seconds old.

        A missing object is looked up each time.
        """
        now = self._core.clock.monotonic()
        self._read = {key: cached for key, cached in self._read.items() if cached[0] > now}
        cached = self._read.get((namespace, source))
        if cached is not None:
            return cached[1]
        data = await reader.read(namespace, source)
        # That an object is missing is not cached, so that it is found as soon as someone creates
        # it.
        if data is not None:
            self._read[namespace, source] = (now + KEPT_S, data)
        return data
