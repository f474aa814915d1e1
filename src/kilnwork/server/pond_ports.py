"""What the paths of ponds need of others: the ledger, who is an agent, and files of file jobs."""

from typing import Protocol

from kilnwork.api import pond_messages, pond_views
from kilnwork.data.pond import manifest
from kilnwork.kit import asgi


class AgentVerifier(Protocol):
    """Who is an agent of a pond."""

    async def verify(self, namespace: str, pond: str, credential: str) -> bool:
        """True when `credential` is the token of this DataPond as it is now. Raises KilnError when
        that is not known yet."""
        ...


class AgentLedger(Protocol):
    """What agents say and hear."""

    def take_report(
        self, namespace: str, pond: str, node: str, report: pond_messages.Report
    ) -> None: ...

    async def order(
        self, namespace: str, pond: str, node: str, *, knows: int, wait_s: float
    ) -> pond_messages.NodeOrder: ...

    def put_manifest(self, namespace: str, pond: str, made: manifest.Manifest) -> None: ...

    def find_manifest(self, namespace: str, pond: str, digest: str) -> manifest.Manifest | None: ...


class JobFiles(Protocol):
    """Files of the file jobs of a namespace."""

    async def listing(self, namespace: str, job: str, directory: str) -> bytes: ...

    async def send(
        self, request: asgi.Request, place: tuple[str, str, str, str], response: asgi.Response
    ) -> None: ...


class PeopleLedger(Protocol):
    """What people see and ask for. None where there is no such DataPond, or no such lease."""

    def node_views(self, namespace: str, pond: str) -> list[pond_views.NodeView] | None: ...

    def lease_views(self, namespace: str, pond: str) -> list[pond_views.LeaseView] | None: ...

    def ask(
        self, namespace: str, pond: str, lease: str, request: pond_views.LeaseRequest
    ) -> pond_views.LeaseView | None:
        """Continue what a client wants; repeatable. Raises PondError for what cannot be."""
        ...

    def take_back(self, namespace: str, pond: str, lease: str) -> bool | None:
        """Release a lease of people; False if there is none of that name."""
        ...

    async def changed(self, *, within_s: float) -> None:
        """Return when something is another one, or after that time."""
        ...
