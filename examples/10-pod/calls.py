"""Python functions in Pods of their own, and others on warm workers; needs a `kiln up`."""

import platform

import kilnwork as kiln

SMALL = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}


@kiln.task
def add_up(first: int, last: int) -> int:
    """Run on a worker: a slot takes microseconds."""
    return sum(range(first, last + 1))


@kiln.task(
    pod={"metadata": {"labels": {"team": "docs"}}, "spec": {"containers": [SMALL]}},
    retries=1,
    timeout=60,
)
def total(first: int, last: int) -> tuple[str, int]:
    """Run in a Pod: an image, resources or a node of its own."""
    middle = (first + last) // 2
    parts = [add_up.submit(first, middle), add_up.submit(middle + 1, last)]
    kiln.context().progress(0.5, "waiting for both halves")
    return platform.node(), sum(part.result() for part in parts)


def main() -> None:
    with kiln.connect():
        host, result = total.submit(1, 100).result(timeout=40)
    print(f"a call in a Pod on {host} has had {result} added up")
    assert result == 5050


if __name__ == "__main__":
    main()
