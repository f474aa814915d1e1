"""Authorization for data that belongs to one object: the caller needs the right to `get` that
object.

Used by the parts of `task_api` that show data of a Job, a JobConfig or a SyncSet.
"""

from kilnwork.api import api_resources as resources
from kilnwork.kit import asgi
from kilnwork.server import errors, ports


async def check(
    request: asgi.Request,
    rights: ports.Rights,
    *,
    resource: resources.Resource,
    namespace: str,
    name: str,
) -> None:
    """Raise MethodNotAllowed unless the request is a GET, and Forbidden if the caller may not `get`
    the object."""
    if request.method != "GET":
        raise errors.MethodNotAllowed
    question = ports.Question(verb="get", namespace=namespace, name=name, resource=resource.plural)
    refused = await rights.refusal(request.user, question)
    if refused is not None:
        raise errors.Forbidden(refused)
