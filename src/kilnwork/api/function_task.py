"""`spec.function` of a Task: one request to a Service of Knative.

It is an HTTP request but for its URL, which the Service says when it is ready. Carried out by
`executors.http`; what is wrong with one says `http_validation`.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import http_task, wire

Path = Annotated[str, msgspec.Meta(pattern="^/")]


class FunctionRequest(http_task.HttpRequest, frozen=True):
    """A HAR 1.2 request to a Service. Needed is `method`; sizes are not looked at."""

    url: Path = "/"
    """Path and query below the URL of the Service."""


class FunctionCancel(wire.Wire, frozen=True):
    """A request to the same Service by which a killed task ends its work."""

    request: FunctionRequest
    """The request; `${task.id}` says which work is meant. A status from 200 to 299, 404 or 410
    acknowledges that it has ended."""
    timeout_seconds: http_task.Timeout = 10.0
    """Time until then. After it the task is `Killed` with reason `Unconfirmed`."""


class FunctionTemplate(http_task.HttpTemplate, frozen=True, kw_only=True):
    """One request to a Service of Knative, to be sent by an executor (`kiln executor http`)."""

    service: str = ""
    """Name of a Service (`serving.knative.dev/v1`) of the task's namespace. Needed, unless a
    JobConfig gives a `template`."""
    template: dict[str, Any] | None = None
    """A Service of Knative (`metadata`, `spec`) that a JobConfig makes and owns, under its own
    name, for all of its Jobs; only in a JobConfig, instead of `service`."""
    request: FunctionRequest
    """The request, as HAR 1.2 has it; its texts may have variables."""
    mode: Annotated[str, msgspec.Meta(pattern="^(Sync|Callback)$")] = "Sync"
    """How the result comes: `Sync`, as the response; `Callback`, by a request to us after 202."""
    cancel: FunctionCancel | None = None
    """How a killed task ends its work. Empty: only the connection is closed."""

    @property
    def awaited(self) -> http_task.Callback | None:
        if self.mode == "Callback":
            return self.callback or http_task.Callback()
        return self.callback

    def at(self, url: str) -> "FunctionTemplate":
        """Return it with absolute URLs, for a Service with that one."""
        cancel = self.cancel
        if cancel is not None:
            cancel = msgspec.structs.replace(cancel, request=_at(cancel.request, url))
        return msgspec.structs.replace(
            self, request=_at(self.request, url), cancel=cancel, callback=self.awaited
        )


def _at(request: FunctionRequest, url: str) -> FunctionRequest:
    return msgspec.structs.replace(request, url=url.rstrip("/") + request.url)
