"""Service-account tokens of Pods: asked for by TokenRequest, bound to the Pod, renewed in time.

Used by `local` before the first start of a container and then at 80 % of each token's life. The
token goes to a file of mode 0600 and nowhere else.
"""

from pathlib import Path

from kilnwork.api import resource
from kilnwork.controlplane.node import errors, pods, volumes
from kilnwork.kube import client
from kilnwork.kube import errors as kube_errors

LIFE_S = 3600
RENEW_AT = 0.8


class Accounts:
    """Gets tokens from the API server; `ca` is the file with its CA certificate."""

    def __init__(self, kube: client.Client, *, ca: Path) -> None:
        self._client = kube
        self._ca = ca

    async def write(self, pod: pods.Pod, folder: volumes.PodFolder) -> float:
        """Write fresh files for the Pod; gives the seconds until they should be renewed.

        Raises `NotYet` if there is no such account.
        """
        bound = {"apiVersion": "v1", "kind": "Pod"}
        bound |= {"name": pod.metadata.name, "uid": pod.metadata.uid}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFE_S, "boundObjectRef": bound},
        }
        name, namespace = pod.spec.service_account_name, pod.metadata.namespace
        try:
            answer = await self._client.create_sub(
                resource.SERVICE_ACCOUNTS, name, "token", request, namespace
            )
        except kube_errors.NotFound as error:
            raise errors.NotYet(str(error)) from error
        folder.write_account(
            token=answer["status"]["token"], ca=self._ca.read_bytes(), namespace=namespace
        )
        life_s = answer.get("spec", {}).get("expirationSeconds") or LIFE_S
        return float(life_s) * RENEW_AT
