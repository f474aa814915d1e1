"""TLS contexts of requests: what they trust and show, and that they are made once."""

import base64
import ssl

import pytest

from kilnwork.api import http_task, reasons
from kilnwork.executors.http import errors, secret_values, tls_contexts
from support import certificates

NO_SECRETS = secret_values.SecretValues({}, "", 0)


def pair(certificate: str, key: str) -> secret_values.SecretValues:
    data = {"tls.crt": certificate, "tls.key": key}
    secret = {
        "metadata": {
            "labels": {secret_values.USE_LABEL: secret_values.USE},
            "annotations": {secret_values.HOSTS: "h"},
        },
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
    }
    return secret_values.SecretValues({"pair": secret}, "h", 443)


def test_servers_are_checked_by_default() -> None:
    made = tls_contexts.TlsContexts().context(http_task.Tls(), NO_SECRETS, "spec.http.tls")
    assert made.verify_mode is ssl.CERT_REQUIRED
    assert made.check_hostname


def test_servers_are_not_checked_on_request() -> None:
    given = http_task.Tls(insecure_skip_verify=True)
    made = tls_contexts.TlsContexts().context(given, NO_SECRETS, "spec.http.tls")
    assert made.verify_mode is ssl.CERT_NONE
    assert not made.check_hostname


def test_equal_tls_has_one_context_and_other_tls_another() -> None:
    contexts = tls_contexts.TlsContexts()
    one = contexts.context(http_task.Tls(), NO_SECRETS, "f")
    assert contexts.context(http_task.Tls(), NO_SECRETS, "f") is one
    other = http_task.Tls(insecure_skip_verify=True)
    assert contexts.context(other, NO_SECRETS, "f") is not one


def test_no_more_than_so_many_contexts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_contexts, "MAX_CONTEXTS", 1)
    contexts = tls_contexts.TlsContexts()
    one = contexts.context(http_task.Tls(), NO_SECRETS, "f")
    contexts.context(http_task.Tls(insecure_skip_verify=True), NO_SECRETS, "f")
    assert contexts.context(http_task.Tls(), NO_SECRETS, "f") is not one


def test_invalid_certificate_is_refused_with_its_field() -> None:
    given = http_task.Tls(ca_bundle="no PEM")
    with pytest.raises(errors.AttemptFailed, match=r"^spec.http.tls cannot be used: ") as caught:
        tls_contexts.TlsContexts().context(given, NO_SECRETS, "spec.http.tls")
    assert caught.value.reason is reasons.Reason.INVALID_SPEC


def test_a_client_certificate_needs_its_own_key() -> None:
    given = http_task.Tls(client_certificate_secret="pair")
    contexts = tls_contexts.TlsContexts()
    authority = certificates.Authority()
    certificate, key = authority.issue("one")
    contexts.context(given, pair(certificate, key), "f")
    with pytest.raises(errors.AttemptFailed, match=r"^f cannot be used"):
        contexts.context(given, pair(certificate, authority.issue("other")[1]), "f")
