"""`spec.function` of a Task: one request to a Knative Service.

It is an HTTP request whose base URL comes from the Service when it is ready. Carried out by
`executors.http`; checked by `http_validation`.
"""

from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, http_task

Path = Annotated[str, msgspec.Meta(pattern="^/")]


class FunctionRequest(http_task.HttpRequest, frozen=True):
    """A HAR 1.2 request to a Service. `method` is required; sizes are ignored."""

    url: Path = "/"
    """Path and query, relative to the URL of the Service."""


class FunctionCancel(base_struct.Wire, frozen=True):
    """A request to the same Service that ends the work of a killed task."""

    request: FunctionRequest
    """The request; `${task.id}` identifies the work. A status from 200 to 299, 404 or 410 confirms
    that the work has ended."""
    timeout_seconds: http_task.Timeout = 10.0
    """Maximum time in seconds until the confirmation. When it is exceeded, the task is `Killed`
    with reason `Unconfirmed`."""


class FunctionTemplate(http_task.HttpTemplate, frozen=True, kw_only=True):
    """One request to a Knative Service, sent by an executor (`kiln executor http`)."""

    service: str = ""
    """Name of a Service (`serving.knative.dev/v1`) in the task's namespace. Required unless a
    JobConfig sets `template`."""
    template: dict[str, Any] | None = None
    """A Knative Service (`metadata`, `spec`) that a JobConfig creates and owns, under its own
    name, for all of its Jobs. Only allowed in a JobConfig, instead of `service`."""
    request: FunctionRequest
    """The request in the format of HAR 1.2. Strings in it may contain variables."""
    mode: Annotated[str, msgspec.Meta(pattern="^(Sync|Callback)$")] = "Sync"
    """How the result is returned. `Sync`: as the response; `Callback`: by a request to the manager
    after status 202."""
    cancel: FunctionCancel | None = None
    """How the work of a killed task is ended. Unset: only the connection is closed."""

    @property
    def callback_settings(self) -> http_task.Callback | None:
        if self.mode == "Callback":
            return self.callback or http_task.Callback()
        return self.callback

    def with_base_url(self, url: str) -> "FunctionTemplate":
        """Return the template with absolute URLs, for a Service at `url`."""
        cancel = self.cancel
        if cancel is not None:
            cancel = msgspec.structs.replace(cancel, request=_with_base_url(cancel.request, url))
        return msgspec.structs.replace(
            self,
            request=_with_base_url(self.request, url),
            cancel=cancel,
            callback=self.callback_settings,
        )


def _with_base_url(request: FunctionRequest, url: str) -> FunctionRequest:
    return msgspec.structs.replace(request, url=url.rstrip("/") + request.url)
