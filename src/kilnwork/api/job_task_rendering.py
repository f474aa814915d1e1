"""Templates of the tasks of a Job, rendered for each index in one pass over their strings.

Used by the engine; `job_template_validation` checks whether a template is valid. Fields with a
second pass in their executor (`pod`, manifests, requests, payloads) keep `task.attempt` and the
other variables that are known only at an attempt; values that look like variables are escaped
there, so that no value is ever parsed for variables (docs/decisions/0039). All other fields are
final: commands, calls. No I/O.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from kilnwork.api import (
    job_indexes,
    job_variables,
    json_limits,
    object_task_manifests,
    prepared_templates,
    substitution,
    task,
    template_fields,
)

FIELD = "spec.template.taskTemplate"
"""Path of the template of the tasks in a Job."""


def index_variables(indexes: job_indexes.IndexSet, job_name: str, number: int) -> dict[str, Any]:
    """Return the variables of one index for `Template.render`."""
    return {
        job_variables.TASK_NAME: job_indexes.task_name(job_name, number),
        **indexes.variables(number),
    }


_Changing = tuple[str, prepared_templates.Prepared, Callable[[Any], Any]]
"""Name of an attribute, its prepared texts, and the function that converts rendered texts to a
value of the attribute."""


class Template:
    """A template that is rendered many times; values that all tasks share are substituted in
    advance."""

    def __init__(self, template: task.TaskTemplate, changing: "list[_Changing]") -> None:
        self._template = template
        self._changing = changing

    @classmethod
    def of(
        cls,
        template: task.TaskTemplate,
        shared: Mapping[str, Any],
        *,
        later: Collection[str] = (),
        field: str = FIELD,
        given_inputs: Collection[str] = (),
    ) -> "Template":
        """Prepare a template. `shared`: variables of all tasks, which take precedence over those
        of the same name passed to `render`. `later`: the names passed to `render`.

        Raises `substitution.InvalidTemplate` with all unknown names, and LimitExceeded.
        """
        values = {job_variables.CLUSTER_NAME: template.cluster_name, **shared}
        known = {*values, *later}
        found = _problems(template, known, field, given_inputs=given_inputs)
        if found:
            raise substitution.InvalidTemplate(found)
        changing: list[_Changing] = []
        fixed: dict[str, Any] = {}
        for part in template_fields.fields_with_variables(template, given_inputs):
            preparation = prepared_templates.Preparation(
                values, later, text_fields=part.text_fields, again=part.second_pass is not None
            )
            prepared = preparation.prepare(part.read(field), texts=part.texts)
            if isinstance(prepared, prepared_templates.Prepared):
                changing.append((part.attribute, prepared, part.build))
            else:
                fixed[part.attribute] = part.build(prepared)
        return cls(msgspec.structs.replace(template, **fixed) if fixed else template, changing)

    @property
    def changes(self) -> bool:
        """Whether `render` substitutes variables: without any, all tasks share one template."""
        return bool(self._changing)

    def render(self, variables: Mapping[str, Any]) -> task.TaskTemplate:
        """Return the template of one task; without variables it is the prepared template itself.

        `variables`: values of all names in `later`. Raises LimitExceeded.
        """
        if not self._changing:
            return self._template
        rendering = prepared_templates.Rendering(variables)
        made = {name: build(one.render(rendering)) for name, one, build in self._changing}
        return msgspec.structs.replace(self._template, **made)


def _problems(
    template: task.TaskTemplate,
    known: Collection[str],
    field: str,
    *,
    given_inputs: Collection[str],
) -> list[substitution.Problem]:
    """Return the problems of the variables of a template at `field` if only the `known` names
    have values."""
    found: list[substitution.Problem] = []
    for part in template_fields.fields_with_variables(template, given_inputs):
        at = f"{field}.{part.field}"
        try:
            found.extend(substitution.find_problems(part.read(at), {*known, *part.kept}, at))
        except json_limits.LimitExceeded as error:
            found.append((at, str(error)))
        except object_task_manifests.InvalidManifest as error:
            found.append((error.field, error.problem))
    return found
