"""Which values of Secrets a request gets, and what it is refused."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kilnwork.api import http_task, reasons
from kilnwork.executors.http import errors, secret_values
from kilnwork.kube import errors as kube_errors


def secret(*, label: str = "http", hosts: str = "api.example.com", **data: bytes) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {secret_values.USE_LABEL: label},
            "annotations": {secret_values.HOSTS: hosts},
        },
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def values(given: Mapping[str, Any], host: str = "api.example.com") -> secret_values.SecretValues:
    return secret_values.SecretValues({"s": given}, host, 443)


REF = http_task.SecretRef(name="s", key="token")


def test_a_value_is_text_without_its_last_line_break_and_is_noted_as_revealed() -> None:
    made = values(secret(token=b"abc\n"))
    assert made.value(REF) == "abc"
    assert made.revealed == {"abc"}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (secret(label="other", token=b"x"), "is not labelled kilnwork.dev/use=http"),
        ({"metadata": {}, "data": {"token": "eA=="}}, "is not labelled"),
        (secret(hosts="b.example.com", token=b"x"), "does not name api.example.com"),
        (secret(other=b"x"), "has no key token"),
        ({**secret(), "data": {"token": "?"}}, "is not base64"),
        (secret(token=b"\xff"), "is no UTF-8 text"),
        (secret(token=b"a\nb"), "has a line break or NUL"),
        (secret(token=b"a\0b"), "has a line break or NUL"),
    ],
)
def test_refused_secret_names_the_reason_and_reveals_nothing(
    given: Mapping[str, Any], why: str
) -> None:
    made = values(given)
    with pytest.raises(errors.AttemptFailed, match=why) as caught:
        made.value(REF)
    assert caught.value.reason is reasons.Reason.SECRET_REFUSED
    assert made.revealed == set()


@pytest.mark.parametrize(
    ("hosts", "is_listed"),
    [
        ("api.example.com", True),
        ("other.com, API.example.com", True),
        ("*.example.com", True),
        ("*.com", True),
        ("example.com", False),
        ("*.api.example.com", False),
        ("api.example.com:443", True),
        ("api.example.com:80", False),
        ("", False),
    ],
)
def test_a_host_is_listed_by_name_suffix_and_port(hosts: str, *, is_listed: bool) -> None:
    assert secret_values.is_listed("Api.example.com", 443, hosts) is is_listed


class Reader:
    """Secrets of one namespace."""

    def __init__(self, error: Exception | None = None, **secrets: Mapping[str, Any]) -> None:
        self.error = error
        self.secrets = secrets
        self.asked: list[tuple[str, str]] = []

    async def secret(self, namespace: str, name: str) -> Mapping[str, Any]:
        self.asked.append((namespace, name))
        if self.error is not None:
            raise self.error
        return self.secrets[name]


def template(url: str = "https://api.example.com/x", **more: Any) -> http_task.HttpTemplate:
    header = {"name": "Authorization", "_secretRef": {"name": "s", "key": "token"}}
    request = {"method": "GET", "url": url, "headers": [header]}
    return msgspec.convert({"request": request, **more}, http_task.HttpTemplate)


async def test_every_secret_that_a_request_names_is_read_once() -> None:
    reader = Reader(s=secret(token=b"1"), pair=secret())
    tls = {"clientCertificateSecret": "pair"}
    found = await secret_values.read(reader, "ns", template(tls=tls), template().request)
    assert reader.asked == [("ns", "pair"), ("ns", "s")]
    assert found.value(REF) == "1"


async def test_a_request_without_secrets_reads_none() -> None:
    plain = msgspec.convert(
        {"request": {"method": "GET", "url": "http://h/"}}, http_task.HttpTemplate
    )
    reader = Reader()
    await secret_values.read(reader, "ns", plain)
    assert reader.asked == []


@pytest.mark.parametrize(
    ("url", "hosts", "is_given"),
    [
        ("http://api.example.com/x", "api.example.com:80", True),
        ("https://api.example.com/x", "api.example.com:80", False),
        ("https://api.example.com:8443/x", "api.example.com:8443", True),
    ],
)
async def test_the_port_is_that_of_the_url(url: str, hosts: str, *, is_given: bool) -> None:
    found = await secret_values.read(Reader(s=secret(hosts=hosts, token=b"1")), "ns", template(url))
    if is_given:
        assert found.value(REF) == "1"
    else:
        with pytest.raises(errors.AttemptFailed):
            found.value(REF)


@pytest.mark.parametrize(
    ("error", "is_loss"),
    [(kube_errors.NotFound(404), False), (kube_errors.Forbidden(403, "Forbidden", "no"), True)],
)
async def test_only_a_secret_that_is_missing_is_the_fault_of_the_task(
    error: kube_errors.KubeError, *, is_loss: bool
) -> None:
    with pytest.raises(errors.AttemptFailed, match="Secret s") as caught:
        await secret_values.read(Reader(error), "ns", template())
    assert caught.value.is_loss is is_loss
