"""When a probe changes its mind, and how ports are named."""

import msgspec
import pytest

from kilnwork.controlplane.node import pod_types, probes


def verdicts(probe: pod_types.Probe, results: str, *, healthy: bool = False) -> list[bool | None]:
    """What each result changes; `+` passes, `-` fails."""
    verdict = probes.ProbeResult(probe, healthy=healthy)
    return [verdict.take(passed=result == "+") for result in results]


def test_first_success_changes_the_result() -> None:
    assert verdicts(pod_types.Probe(), "-+") == [None, True]


def test_failures_must_be_consecutive() -> None:
    assert verdicts(pod_types.Probe(), "+--+---") == [True, None, None, None, None, None, False]


def test_liveness_starts_as_healthy() -> None:
    assert verdicts(pod_types.Probe(), "+---", healthy=True) == [None, None, None, False]


def test_readiness_success_threshold_is_respected() -> None:
    probe = pod_types.Probe(success_threshold=2, failure_threshold=1)
    assert verdicts(probe, "++-+-++") == [None, True, False, None, None, None, True]


def test_threshold_of_zero_counts_as_one() -> None:
    assert verdicts(pod_types.Probe(failure_threshold=0), "-") == [False]


def test_port_is_found_by_number_or_name() -> None:
    container = pod_types.Container(
        name="c", ports=(pod_types.Port(container_port=8080, name="web"),)
    )
    assert probes.port_number(container, 80) == 80
    assert probes.port_number(container, "81") == 81
    assert probes.port_number(container, "web") == 8080
    with pytest.raises(ValueError, match="couldn't find port: db"):
        probes.port_number(container, "db")


def test_probe_of_the_api_server_is_decoded() -> None:
    sent = {
        "httpGet": {"path": "/healthz", "port": "web", "scheme": "HTTPS"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    probe = msgspec.convert(sent, pod_types.Probe)
    assert probe.http_get is not None
    assert (probe.http_get.port, probe.http_get.scheme) == ("web", "HTTPS")
