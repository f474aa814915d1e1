"""Ports of the pond paths: the ledger, authentication of agents, and files of file jobs."""

from typing import Protocol

from kilnwork.api import pond_messages, pond_views
from kilnwork.data.pond import manifest
from kilnwork.kit import asgi


class AgentVerifier(Protocol):
    """Authentication of the agents of a pond."""

    async def verify(self, namespace: str, pond: str, credential: str) -> bool:
        """Return whether `credential` is the current token of this DataPond. Raises KilnError if
        that is unknown yet."""
        ...


class AgentLedger(Protocol):
    """The pond ledger as agents see it: it takes their reports and returns orders for their
    nodes.
    """

    def take_report(
        self, namespace: str, pond: str, node: str, report: pond_messages.Report
    ) -> None: ...

    async def order(
        self, namespace: str, pond: str, node: str, *, knows: int, wait_s: float
    ) -> pond_messages.NodeOrder: ...

    def put_manifest(self, namespace: str, pond: str, made: manifest.Manifest) -> None: ...

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None: ...


class JobFiles(Protocol):
    """Access to the files of the file jobs of a namespace."""

    async def listing(self, namespace: str, job: str, directory: str) -> bytes: ...

    async def send(
        self, request: asgi.Request, place: tuple[str, str, str, str], response: asgi.Response
    ) -> None: ...


class PeopleLedger(Protocol):
    """The pond ledger as users see it: nodes and leases. Methods other than `changed` return None
    if the DataPond does not exist.
    """

    def node_views(self, namespace: str, pond: str) -> list[pond_views.NodeView] | None: ...

    def lease_views(self, namespace: str, pond: str) -> list[pond_views.LeaseView] | None: ...

    def ask(
        self, namespace: str, pond: str, lease: str, request: pond_views.LeaseRequest
    ) -> pond_views.LeaseView | None:
        """Create a lease or continue it; may be repeated. Raises PondError if the request is
        invalid.
        """
        ...

    def take_back(self, namespace: str, pond: str, lease: str) -> bool | None:
        """Release a lease of a user; return False if the user has no lease of that name."""
        ...

    async def changed(self, *, within_s: float) -> None:
        """Wait until something in the ledger changes, or until `within_s` seconds have passed."""
        ...
