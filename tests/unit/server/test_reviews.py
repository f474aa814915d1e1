"""Texts of refusals, worded as in Kubernetes."""

import pytest

from kilnwork.api import kinds
from kilnwork.server import ports, reviews


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (
            ports.Question(verb="get", namespace="a", name="t", resource="tasks"),
            (
                'tasks.GROUP "t" is forbidden: User "ann" cannot get resource "tasks" in API group '
                '"GROUP" in the namespace "a"'
            ),
        ),
        (
            ports.Question(verb="list", namespace="", name="", resource="tasks"),
            (
                'tasks.GROUP is forbidden: User "ann" cannot list resource "tasks" in API group '
                '"GROUP" at the cluster scope'
            ),
        ),
        (
            ports.Question(
                verb="get", namespace="a", name="t", resource="tasks", subresource="log"
            ),
            (
                'tasks.GROUP "t" is forbidden: User "ann" cannot get resource "tasks/log" in API '
                'group "GROUP" in the namespace "a"'
            ),
        ),
    ],
)
def test_refusal_names_user_and_resource(question: ports.Question, text: str) -> None:
    assert reviews.refusal_text("ann", question) == text.replace("GROUP", kinds.GROUP)
