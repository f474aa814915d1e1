"""Name server for Services in a sandbox, in place of the cluster's DNS: `python -m hack.kube.dns`.

Started by `services` inside the sandbox. It serves A queries for NAME.NAMESPACE.svc.cluster.local
with the ClusterIP, for a headless Service with the addresses of its ready Pods, and for
POD.NAME.NAMESPACE.svc.cluster.local with that of one Pod that has a hostname there
(https://github.com/kubernetes/dns/blob/master/docs/specification.md). It queries the API server
each time, so that a Service is known as soon as it is created. No SRV, no PTR, no external names.
"""

import argparse
import ipaddress
import json
import socket
import ssl
import struct
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

DOMAIN = "svc.cluster.local"
_TTL_S = 1
_HEADER = struct.Struct("!6H")
_A, _IN = 1, 1
_OK, _FAILED, _NO_NAME = 0, 2, 3


class Lookup:
    """Look-ups at the API server at `url`, with the certificates in `pki`."""

    def __init__(self, url: str, pki: Path) -> None:
        self._url = url
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def addresses(self, name: str) -> list[str] | None:
        """Return the addresses of a name below DOMAIN; None if there is no such name. Raises
        OSError.
        """
        labels = name.lower().rstrip(".").removesuffix(f".{DOMAIN}").split(".")
        if not name.lower().rstrip(".").endswith(f".{DOMAIN}") or len(labels) not in (2, 3):
            return None
        *host, service, namespace = labels
        found = self._get(f"/api/v1/namespaces/{namespace}/services/{service}")
        if found is None:
            return None
        address = found["spec"].get("clusterIP", "None")
        if address != "None":
            return None if host else [address]
        of_pods = self._of_pods(namespace, service, host)
        return None if host and not of_pods else of_pods

    def _of_pods(self, namespace: str, service: str, host: list[str]) -> list[str]:
        slices = self._get(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            f"?labelSelector=kubernetes.io/service-name={service}"
        )
        return [
            address
            for item in (slices or {"items": []})["items"]
            for endpoint in item["endpoints"] or ()
            if endpoint.get("conditions", {}).get("ready", True)
            and (not host or [endpoint.get("hostname")] == host)
            for address in endpoint["addresses"]
        ]

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            with self._opener.open(self._url + path, timeout=2) as response:
                found: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        return found


def respond(question: bytes, lookup: Lookup) -> bytes:
    """Return the response to a query (RFC 1035, section 4)."""
    number, flags, *_ = _HEADER.unpack_from(question)
    name, end = _name(question, _HEADER.size)
    kind, _ = struct.unpack_from("!2H", question, end)
    code, records = _OK, []
    try:
        found = lookup.addresses(name)
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        code = _FAILED
    else:
        code = _NO_NAME if found is None else _OK
        if kind == _A:
            records = [ipaddress.ip_address(address).packed for address in found or ()]
    flags_out = 0x8400 | (flags & 0x0100) | code
    head = _HEADER.pack(number, flags_out, 1, len(records), 0, 0)
    body = b"".join(
        struct.pack("!3HIH", 0xC000 | _HEADER.size, _A, _IN, _TTL_S, len(packed)) + packed
        for packed in records
    )
    return head + question[_HEADER.size : end + 4] + body


def _name(message: bytes, at: int) -> tuple[str, int]:
    labels = []
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("ascii"))
        at += 1 + message[at]
    return ".".join(labels), at + 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.kube.dns", description=__doc__)
    parser.add_argument("--listen", required=True, help="address; port 53, UDP")
    parser.add_argument("--server", required=True, help="URL of the API server")
    parser.add_argument("--pki", required=True, type=Path)
    given = parser.parse_args()
    lookup = Lookup(given.server, given.pki)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((given.listen, 53))
        while True:
            question, peer = sock.recvfrom(4096)
            try:
                reply = respond(question, lookup)
            except (struct.error, IndexError, ValueError) as error:
                print(f"not understood: {error}", file=sys.stderr, flush=True)
                continue
            try:
                sock.sendto(reply, peer)
            except OSError as error:  # EPERM while kube-proxy changes its rules: clients ask again
                print(f"no reply to {peer[0]}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
