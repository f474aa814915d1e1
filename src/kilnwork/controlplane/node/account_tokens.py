"""Service-account tokens of Pods: requested by TokenRequest, bound to the Pod, renewed in time.

Used by `container_preparation` before the first start of a container and then at 80 % of each
token's lifetime. A token is written to a file in the private directory of its Pod and nowhere else.
"""

from kilnwork.api import api_resources
from kilnwork.controlplane.node import container_input_types, errors, pod_types, volumes
from kilnwork.kube import client
from kilnwork.kube import errors as kube_errors

LIFE_S = 3600
RENEW_AT = 0.8


class AccountTokens:
    """Gets tokens of service accounts from the API server.

    `ca` is the CA of the API server in PEM, for Pods without a volume for their account.
    """

    def __init__(self, kube: client.Client, *, ca: bytes) -> None:
        self._client = kube
        self._ca = ca

    async def write(self, pod: pod_types.Pod, directory: volumes.PodDirectory) -> float:
        """Write new account files for the Pod. Return the seconds until they must be renewed.

        Raises the errors of `token`, and OSError.
        """
        token, renew_s = await self.token(pod, container_input_types.TokenWant("", LIFE_S))
        directory.write_account(token=token, ca=self._ca, namespace=pod.metadata.namespace)
        return renew_s

    async def token(
        self, pod: pod_types.Pod, want: container_input_types.TokenWant
    ) -> tuple[str, float]:
        """Return a token bound to the Pod, and the seconds until the token must be renewed.

        Raises `InputsNotReady` if the account does not exist or the token is forbidden, and
        KubeError.
        """
        # The token is bound to the Pod, so that it is invalid once the Pod is deleted (KEP-1205).
        bound = {"apiVersion": "v1", "kind": "Pod"}
        bound |= {"name": pod.metadata.name, "uid": pod.metadata.uid}
        spec = {"expirationSeconds": want.seconds, "boundObjectRef": bound}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {**spec, "audiences": [want.audience]} if want.audience else spec,
        }
        name, namespace = pod.spec.service_account_name or "default", pod.metadata.namespace
        try:
            response = await self._client.create_sub(
                api_resources.SERVICE_ACCOUNTS, name, "token", request, namespace
            )
        except (kube_errors.NotFound, kube_errors.Forbidden) as error:
            raise errors.InputsNotReady(f"failed to fetch token: {error}") from error
        # The server may grant another lifetime than the requested one.
        life_s = response.get("spec", {}).get("expirationSeconds") or want.seconds
        return response["status"]["token"], float(life_s) * RENEW_AT
