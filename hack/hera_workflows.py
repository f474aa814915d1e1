"""Records what Hera's `Workflow.to_dict()` returns, for tests of `spec.workflow` and
`kiln.workflow`.

`python -m hack.hera_workflows FILE`, with `pip install hera` in the same environment. Run it by
hand to follow another version of Hera; the stored Workflows are of 7.1.0. Each of them can run:
`make test-peers` runs them on the real Argo.
"""

import json
import sys
from pathlib import Path

from hera.workflows import (
    DAG,
    Container,
    Parameter,
    RetryStrategy,
    Script,
    Steps,
    Suspend,
    Workflow,
    models,
)

IMAGE = "python:3.11"


def double(n: int) -> None:
    print(2 * n)


def greet(whom: str) -> None:
    with open("/tmp/greeting", "w") as file:  # noqa: PTH123 - a script is this and nothing around
        file.write(f"hello {whom}")


def greeter() -> Script:
    """Return the template whose output is the result of the Workflow."""
    path = models.ValueFrom(path="/tmp/greeting")
    greeting = Parameter(name="greeting", global_name="greeting", value_from=path)
    return Script(name="greet", image=IMAGE, source=greet, outputs=[greeting])


def steps() -> Workflow:
    """Return a template with parallel steps: a script, a container that is retried, a pause."""
    with Workflow(generate_name="steps-", entrypoint="main", arguments={"n": 3}) as made:
        doubler = Script(name="double", image=IMAGE, source=double)
        retry = RetryStrategy(limit=2, retry_policy="Always")
        command = ["sh", "-c", "test {{retries}} = 1"]
        flaky = Container(name="flaky", image=IMAGE, command=command, retry_strategy=retry)
        pause, last = Suspend(name="pause", duration=1), greeter()
        with Steps(name="main") as main:
            doubler(name="first", arguments={"n": "{{workflow.parameters.n}}"})
            with main.parallel():
                flaky(name="again")
                pause(name="wait")
            last(name="last", arguments={"whom": "{{steps.first.outputs.result}}"})
    return made


def diamond() -> Workflow:
    """Return a graph of four tasks, with commonly used limits."""
    with Workflow(
        name="diamond",
        entrypoint="main",
        active_deadline_seconds=240,
        labels={"made-by": "hera"},
        ttl_strategy=models.TTLStrategy(seconds_after_completion=3600),
    ) as made:
        text = Parameter(name="text")
        command = ["echo", "{{inputs.parameters.text}}"]
        echo = Container(name="echo", image=IMAGE, command=command, inputs=[text])
        greeting = greeter()
        with DAG(name="main"):
            first, left, right = (
                echo(name=name, arguments={"text": name}) for name in ("first", "left", "right")
            )
            last = greeting(name="last", arguments={"whom": "Ada"})
            first >> [left, right] >> last
    return made


if __name__ == "__main__":
    found = {made.__name__: made().to_dict() for made in (steps, diamond)}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
