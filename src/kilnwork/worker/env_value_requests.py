"""Requests to the dispatcher for the values of a call's variables, from Secrets and ConfigMaps.

Used by `slot_session`, which has the link, and `call_execution`, which needs the values before a
call starts.
"""

from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.sdk import errors
from kilnwork.worker import slot_call_table


class VariableRequests:
    """Sends requests for the values of variables, and waits for the responses.

    A request that has no response yet is sent again on each new link.
    """

    def __init__(
        self,
        send: Callable[[messages.GetVariables], None],
        wait: Callable[[Callable[[], bool]], object],
    ) -> None:
        self._send = send
        self._wait = wait
        self._serial = 0
        self._open: dict[int, attempts.AttemptRef] = {}
        self._responses: dict[int, messages.Response] = {}

    def request(self, level: slot_call_table.StackLevel) -> messages.Response:
        """Request the variables of a call and return the response.

        Raises Cancelled if the call must stop meanwhile.
        """
        self._serial += 1
        serial = self._serial
        self._open[serial] = level.ref
        self._send(messages.GetVariables(serial, level.ref))
        try:
            self._wait(lambda: serial in self._responses or bool(level.stop))
        finally:
            self._open.pop(serial, None)
        response = self._responses.pop(serial, None)
        if response is None:
            raise errors.Cancelled("it was stopped before it began")
        return response

    def resolve(self, response: messages.Response) -> None:
        """Pass a response of the dispatcher to the call that waits for it."""
        # A response that comes after the call was stopped is dropped.
        if response.serial in self._open:
            self._responses[response.serial] = response

    def pending(self) -> list[messages.GetVariables]:
        """Return the requests that have no response yet, to send them on a new link."""
        return [messages.GetVariables(serial, ref) for serial, ref in self._open.items()]
