"""Metrics in the format of Prometheus."""

from kilnwork.server import metrics


def test_samples_have_one_header_per_name_and_escaped_labels() -> None:
    def sample(state: str, value: float) -> metrics.Sample:
        return metrics.Sample(
            name="kilnwork_tasks", help="Tasks by state.", value=value, labels=(("state", state),)
        )

    text = metrics.text([sample("Running", 2), sample('a"b\\', 1_500_000)])
    assert text == (
        "# HELP kilnwork_tasks Tasks by state.\n"
        "# TYPE kilnwork_tasks gauge\n"
        'kilnwork_tasks{state="Running"} 2\n'
        'kilnwork_tasks{state="a\\"b\\\\"} 1500000\n'
    )
