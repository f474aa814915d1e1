"""Errors of reaching a manager."""

import pytest

from kilnwork.endpoints import errors
from kilnwork.kit import errors as kit_errors


@pytest.mark.parametrize("kind", [errors.AccessDenied, errors.ManagerNotReady])
def test_each_error_is_a_configuration_error(kind: type[errors.EndpointError]) -> None:
    assert issubclass(kind, errors.EndpointError)
    assert issubclass(errors.EndpointError, kit_errors.ConfigurationError)


def test_only_unready_managers_are_retried() -> None:
    assert not issubclass(errors.AccessDenied, errors.ManagerNotReady)
    assert not issubclass(errors.ManagerNotReady, errors.AccessDenied)


def test_text_names_the_server_and_the_cause() -> None:
    text = errors.unanswered("https://a:1", ConnectionRefusedError("refused"))
    assert text.startswith("https://a:1 does not respond (refused): ")
    assert "kubeconfig or address" in text
