"""The Knative Service that a JobConfig owns."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import job_config, knative_service_rendering

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}


def config(name: str = "c", **function: Any) -> job_config.JobConfig:
    task = {"function": {"request": {"method": "GET", "url": "/"}, **function}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "n", "uid": "u"},
            "spec": {
                "concurrency": {"policy": "Allow"},
                "template": {"spec": {"taskTemplate": task}},
            },
        },
        job_config.JobConfig,
    )


def test_the_service_has_the_name_and_the_owner_of_the_config() -> None:
    made = knative_service_rendering.service(config(template=TEMPLATE))
    assert made is not None
    assert made["metadata"]["name"] == "c"
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert made["spec"] == TEMPLATE["spec"]


def test_a_config_without_a_template_owns_no_service() -> None:
    assert knative_service_rendering.service(config(service="s")) is None


def test_jobs_name_the_service_instead_of_the_template() -> None:
    template = config(template=TEMPLATE).spec.template.spec
    placed = knative_service_rendering.with_service_name(template, "c").effective_task
    assert placed is not None
    assert placed.function is not None
    assert (placed.function.service, placed.function.template) == ("c", None)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (config(template=TEMPLATE, service="s"), "function.service"),
        (config("1c", template=TEMPLATE), "metadata.name"),
        (config(template={**TEMPLATE, "kind": "X"}), "function.template.kind"),
        (config(template={"metadata": 5, "spec": {"a": 1}}), "function.template.metadata"),
        (config(template={"metadata": {}}), "function.template.spec"),
    ],
)
def test_invalid_service_template_is_refused(given: job_config.JobConfig, field: str) -> None:
    (found,) = knative_service_rendering.problems(given)
    assert found[0].endswith(field)


def test_valid_service_template_has_no_problems() -> None:
    assert list(knative_service_rendering.problems(config(template=TEMPLATE))) == []
