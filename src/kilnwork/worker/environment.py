"""The environment of a command, made from the Pod's variables, the Task's `env` and the worker
contract.

Used by `attempt`. The contract is docs/reference/worker-contract.md. A command gets KUBECONFIG only
if the node has mounted a service account into the Pod; the worker itself never uses the account.
The kubeconfig is written as JSON, which is also YAML, so that a client needs no YAML parser.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kilnwork.api import env_sources, sync_set_env
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.worker import directories, errors, orphans, settings

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory where Kubernetes mounts token, ca.crt and namespace of a Pod's service account."""

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class Environment:
    """The facts that the environments of all attempts of this worker share."""

    def __init__(self, inherited: Mapping[str, str], *, mounts: Path, pod_uid: str) -> None:
        self._pod_uid = pod_uid
        self._account = settings.mounted(ACCOUNT, mounts=mounts)
        self._host, self._port = inherited.get(HOST, ""), inherited.get(PORT, "443")
        left_out = settings.OWN_VARIABLES | {HOST, PORT, orphans.MARKER}
        self._base = {name: value for name, value in inherited.items() if name not in left_out}

    def for_attempt(
        self, run: messages.Run, place: directories.AttemptDirectory, values: Mapping[str, str] = {}
    ) -> dict[str, str]:
        """Return the environment variables of one attempt; write its kubeconfig if it gets one.
        Raises CannotStartHere.

        `values`: the Task's own variables whose values come from Secrets and ConfigMaps.
        """
        # Later entries win: a Task cannot override the contract.
        return {
            **self._base,
            "TMPDIR": str(place.directory),
            **self._kubernetes(run.namespace, place),
            **env_sources.with_values(run.spec.env, values),
            **_contract(run, place),
            **self._outputs(run),
        }

    def of_container(
        self, run: messages.Run, place: directories.AttemptDirectory
    ) -> dict[str, str]:
        """Return the variables to add to an attempt's own container, besides the Task's `env` and
        those of its image.

        Raises as `for_attempt`.
        """
        kubernetes = self._kubernetes(run.namespace, place)
        if kubernetes:
            # The kubeconfig names the token's file, but does not contain the token.
            place.kubeconfig.chmod(0o644)
        return {**kubernetes, **_contract(run, place), "KILN_POD_UID": self._pod_uid}

    def _outputs(self, run: messages.Run) -> dict[str, str]:
        """Return the variable that names the directory for output files of the attempt's SyncSet,
        and make that directory; return nothing without a SyncSet.
        """
        shared = self._base.get(sync_set_env.OUTPUTS, "")
        if not shared:
            return {}
        ref = run.ref
        name = sync_set_env.output_directory(
            ids.task_text(ref.task), run=ref.run, attempt=ref.attempt
        )
        directory = Path(shared) / name
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise errors.CannotStartHere(
                f"the worker cannot make the directory of its outputs: {error}"
            ) from error
        return {sync_set_env.OUTPUTS: str(directory)}

    def _kubernetes(self, namespace: str, place: directories.AttemptDirectory) -> dict[str, str]:
        token = self._account / "token"
        if not self._host or not token.exists():
            return {}
        config = kubeconfig(
            server=f"https://{_bracketed(self._host)}:{self._port}",
            account=self._account,
            namespace=namespace,
        )
        try:
            descriptor = os.open(place.kubeconfig, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(config)
        except OSError as error:
            raise errors.CannotStartHere(f"the worker cannot write KUBECONFIG: {error}") from error
        return {"KUBECONFIG": str(place.kubeconfig), HOST: self._host, PORT: self._port}


def _contract(run: messages.Run, place: directories.AttemptDirectory) -> dict[str, str]:
    ref = run.ref
    contract = {
        "TASK_NAME": run.name,
        "TASK_NAMESPACE": run.namespace,
        "KILN_TASK_ID": ids.task_text(ref.task),
        "KILN_RUN": str(ref.run),
        "KILN_ATTEMPT": str(ref.attempt),
        "KILN_DIR": str(place.directory),
        "KILN_OUTPUT": str(place.output),
        "KILN_SOCKET": str(place.address),
        orphans.MARKER: str(ref),
    }
    if place.input is not None:
        contract["KILN_INPUT"] = str(place.input)
    return contract


def kubeconfig(*, server: str, account: Path, namespace: str) -> bytes:
    """Return a kubeconfig with one context.

    The token is not copied but read from its file, where the node renews it.
    """
    name = "kilnwork"
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": server,
                        "certificate-authority": str(account / "ca.crt"),
                    },
                }
            ],
            "users": [{"name": name, "user": {"tokenFile": str(account / "token")}}],
            "contexts": [
                {
                    "name": name,
                    "context": {"cluster": name, "user": name, "namespace": namespace},
                }
            ],
        }
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
