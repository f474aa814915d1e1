"""Option schemas: the options of a JobConfig as JSON Schema, `GET
/v1/namespaces/NS/jobconfigs/NAME/options`.

Mounted by `task_api`. For web pages that ask for values, as `kiln run-job` does; the values go into
`spec.optionValues` of a Job with that `configName`.
"""

import msgspec

from kilnwork.api import job_config_options, job_option_forms, kinds
from kilnwork.kit import asgi
from kilnwork.server import errors, object_authorization, ports

JSON_SCHEMA = "application/schema+json"


class OptionSchemas:
    """Handler of requests for the option schema of a JobConfig. `jobs`, `rights`: ports."""

    def __init__(self, jobs: ports.Jobs, rights: ports.Rights) -> None:
        self._jobs = jobs
        self._rights = rights

    async def send(
        self, request: asgi.Request, namespace: str, name: str, *, response: asgi.Response
    ) -> None:
        """Send the option schema of a JobConfig. The caller needs the right to `get` the
        JobConfig.
        """
        await object_authorization.check(
            request, self._rights, resource=kinds.JOB_CONFIGS, namespace=namespace, name=name
        )
        config = self._jobs.config(namespace, name)
        if config is None:
            raise errors.NotFound(f'there is no JobConfig "{name}" in namespace "{namespace}"')
        problems = list(job_config_options.problems(config.spec.option))
        if problems:
            said = "; ".join(f"{field} {problem}" for field, problem in problems)
            raise errors.Conflict(f"JobConfig {name} cannot be used: {said}")
        body = msgspec.json.encode(job_option_forms.json_schema(config.spec.option)) + b"\n"
        await response.send(200, JSON_SCHEMA, body)
