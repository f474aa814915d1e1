"""A real Kubernetes API server for tests of operators, in about a second and without Docker.

Use `with kubernetes.server() as kube:` in any test, or the pytest fixture `kiln_kubernetes` after
`pytest_plugins = ["kilnwork.testing.kubernetes"]`. Serves the embedded control plane of `kiln up`
from a thread of the test's own process: no dispatcher, no manager, no other process except the
containers of a requested node. Not for load, and not a replacement for a run against the real
kube-apiserver: docs/reference/differences.md lists where the two differ.
"""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvloop

from kilnwork.api import api_resources, meta, yaml_loader
from kilnwork.controlplane import cluster
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import client, config, errors

T = TypeVar("T")
Manifests = str | Path | meta.JsonObject | Iterable["Manifests"]
"""YAML text, a file, a directory of *.yaml files, a decoded object, or several of these."""

STOP_S = 30.0
"""Maximum seconds for stopping; 2 s of these are for the containers of a node to end by
themselves.
"""
SERVED_S = 10.0
"""Maximum seconds for which `install` waits until the kind of a new definition is served."""
_NODE_GRACE_S = 2.0
_POLL_S = 0.01
_MANAGER = "kilnwork-testing"


class KubernetesServer:
    """A running API server of Kubernetes, for tests.

    `kubeconfig`: path of a kubeconfig with administrator rights, for client libraries, kubectl and
    `KUBECONFIG`. `url`: URL of the server, which listens on 127.0.0.1 only, with TLS. `data_dir`:
    the directory to which it writes everything.
    """

    def __init__(self, serving: "_Serving") -> None:
        self._serving = serving
        self.data_dir = serving.plane.data_dir
        self.kubeconfig = serving.plane.kubeconfig
        self.url = serving.plane.address

    def install(self, manifests: Manifests) -> list[meta.JsonObject]:
        """Apply objects: first all CustomResourceDefinitions, then the others in the given order.

        Returns the objects as stored by the server; kinds that are defined are served by then.
        Raises ValueError for documents that are no objects, LookupError for a kind that is not
        served, TimeoutError if a definition is not served in time, and the errors of `request`.
        """
        objects = sorted(_objects(manifests), key=lambda obj: obj["kind"] != _CRD.kind)
        return self._serving.run(self._install(objects), timeout_s=SERVED_S * (len(objects) + 1))

    def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Send one request as administrator; return the decoded JSON of the response.

        `path`: such as `/api/v1/namespaces/default/pods`. Raises one of `kilnwork.kube.errors`
        (NotFound, Conflict, Invalid) if the server refuses it.
        """
        return self._serving.run(self._request(method, path, body, query))

    async def _request(
        self, method: str, path: str, body: Any, query: Mapping[str, str]
    ) -> meta.JsonObject:
        data = None if body is None else msgspec.json.encode(body)
        response = await self._serving.client.raw(method, path, body=data, query=query)
        found: meta.JsonObject = msgspec.json.decode(response.body)
        return found

    async def _install(self, objects: Iterable[meta.JsonObject]) -> list[meta.JsonObject]:
        installed = []
        for obj in objects:
            kind = await self._resource(obj)
            done = await self._serving.client.apply(kind, obj, manager=_MANAGER, force=True)
            if kind.kind == _CRD.kind:
                await self._served(done)
            installed.append(done)
        return installed

    async def _resource(self, obj: meta.JsonObject) -> api_resources.Resource:
        """Return the resource of an object's kind. Raises LookupError if it is not served."""
        version, kind = obj["apiVersion"], obj["kind"]
        for each in await self._discover(version):
            if each["kind"] == kind and "/" not in each["name"]:
                group, _, short = version.rpartition("/")
                return api_resources.Resource(
                    group=group,
                    version=short,
                    kind=kind,
                    plural=each["name"],
                    singular=each["singularName"],
                    namespaced=each["namespaced"],
                )
        raise LookupError(
            f"kind {kind} of {version} is not served: install its CustomResourceDefinition first"
        )

    async def _discover(self, version: str) -> list[dict[str, Any]]:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            found = await self._request("GET", path, None, {})
        except errors.NotFound:
            return []
        resources: list[dict[str, Any]] = found["resources"]
        return resources

    async def _served(self, definition: meta.JsonObject) -> None:
        spec = definition["spec"]
        wanted = {
            (f"{spec['group']}/{version['name']}", spec["names"]["plural"])
            for version in spec["versions"]
            if version["served"]
        }
        try:
            async with asyncio.timeout(SERVED_S):
                for version, plural in wanted:
                    await self._listed(version, plural)
        except TimeoutError as error:
            name = definition["metadata"]["name"]
            raise TimeoutError(
                f"CustomResourceDefinition {name} is not served after {SERVED_S:g} s: "
                "its status says why"
            ) from error

    async def _listed(self, version: str, plural: str) -> None:
        while True:
            if any(each["name"] == plural for each in await self._discover(version)):
                return
            await asyncio.sleep(_POLL_S)


@contextlib.contextmanager
def server(*, node: bool = False, controllers: bool = True) -> Iterator[KubernetesServer]:
    """Run a new, empty API server of Kubernetes until the end of the block.

    `node`: also run a node, which runs Pods as processes of this machine, so that tests see them
    succeed and fail; without it they stay Pending. `controllers`: garbage collection by owner
    references and of Pods, binding of Pods to nodes and taint eviction; False if a test does these
    itself. The controllers of Namespaces, CustomResourceDefinitions and aggregated ClusterRoles
    always run.

    Each server has its own port and data directory, so servers in one process or in several do not
    interfere. Everything it creates is removed when the block ends, however it ends.
    """
    with tempfile.TemporaryDirectory(prefix="kiln-kubernetes-") as directory:
        settings = cluster.ControlPlaneSettings(
            data_dir=Path(directory) / "data",
            port=0,
            workdir=Path(directory),
            node_name="local",
            controllers=controllers,
        )
        serving = _Serving(settings, node=node)
        try:
            serving.start()
            yield KubernetesServer(serving)
        finally:
            serving.stop()


class _Serving:
    """A control plane of Kubernetes that runs on an event loop of its own, in a thread.

    One coroutine starts it, waits and stops it, so that an interrupted start is undone as well.
    """

    def __init__(self, settings: cluster.ControlPlaneSettings, *, node: bool) -> None:
        self.plane = cluster.ControlPlane(settings)
        self.client: client.Client
        self._node = node
        self._started: futures.Future[None] = futures.Future()
        self._loop = uvloop.new_event_loop()
        self._over = asyncio.Event()
        # a daemon: an interpreter that exits in the middle of a test does not wait for it
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)

    def start(self) -> None:
        """Start the control plane, and wait until it accepts requests. Raises the error that
        prevents it.
        """
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Stop the control plane and end its thread."""
        if self._thread.ident is None:
            self._loop.close()
            return
        # RuntimeError: the loop is closed, because the start has failed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise TimeoutError(
                f"the API server at {self.plane.address} did not stop in {STOP_S:g} s"
            )

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float = 60.0) -> T:
        """Run a coroutine on the event loop of the control plane, and return its result."""
        if self._over.is_set() or not self._thread.is_alive():
            work.close()
            raise kit_errors.ConfigurationError(
                "the API server has stopped: its `with` block or fixture is over"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(self.plane.stop)
                await self.plane.start()
                self.client = await stack.enter_async_context(
                    client.Client(config.load(self.plane.kubeconfig), user_agent=_MANAGER)
                )
                if self._node:
                    stack.push_async_callback(self.plane.stop_node, grace_s=_NODE_GRACE_S)
                    await self.plane.start_node()
                self._started.set_result(None)
                await self._over.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


_CRD = api_resources.CUSTOM_RESOURCE_DEFINITIONS


def _objects(manifests: Manifests) -> Iterator[meta.JsonObject]:
    match manifests:
        case Path() if manifests.is_dir():
            yield from _objects(sorted(manifests.glob("*.yaml")))
        case Path():
            yield from _objects(manifests.read_text())
        case str():
            for document in yaml_loader.load_all(manifests):
                if isinstance(document, str):
                    text = f"no manifest: {document!r:.200}; for a file give a Path"
                    raise ValueError(text)  # noqa: TRY004 - the text is wrong, not its type
                yield from _objects(document)
        case dict() if isinstance(manifests.get("items"), list):
            yield from _objects(manifests["items"])
        case dict():
            missing = [name for name in ("apiVersion", "kind", "metadata") if name not in manifests]
            if missing:
                raise ValueError(f"a manifest has no {', '.join(missing)}: {manifests!r:.200}")
            yield manifests
        case _ if isinstance(manifests, Iterable):
            for one in manifests:
                yield from _objects(one)
        case _:
            raise ValueError(f"no manifest: {manifests!r:.200}; give YAML text, a Path or a dict")


try:
    import pytest
except ModuleNotFoundError:  # without pytest, only `server` is available
    pass
else:

    @pytest.fixture(scope="session")
    def kiln_kubernetes() -> Iterator[KubernetesServer]:
        """An API server for all tests of this process; give each test a namespace of its own."""
        with server() as running:
            yield running
