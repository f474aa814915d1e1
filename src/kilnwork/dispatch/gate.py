"""Who may connect: Hello is checked here before the machine hears of it.

Used by the hub. Asks the `TokenVerifier`; a refusal names its reason and whether to try again.
"""

from collections.abc import Callable

from kilnwork.channel import messages, ports
from kilnwork.dispatch import links
from kilnwork.kit import coroutines, errors

MAX_SLOTS = 10_000
Believed = Callable[[links.Link, messages.Hello], None]


class Gate:
    """Checks one Hello at a time for each link, all links side by side."""

    def __init__(self, verifier: ports.TokenVerifier, crew: coroutines.Crew) -> None:
        self.epoch = 0
        self._verifier = verifier
        self._crew = crew

    def check(self, link: links.Link, hello: messages.Hello, believed: Believed) -> None:
        """Call `believed` when the Hello is in order, else refuse the link."""
        if hello.version != messages.VERSION:
            message = f"version {hello.version} is not spoken here, {messages.VERSION} is"
            link.refuse("Version", message, retry=False)
        elif hello.role != "worker":
            link.refuse("Role", f"no role {hello.role[:64]!r}", retry=False)
        elif hello.epoch > self.epoch:
            message = f"epoch {hello.epoch} was seen elsewhere, this dispatcher is {self.epoch}"
            link.refuse("Epoch", message, retry=True)
        elif problem := _problem(hello):
            link.refuse("Malformed", problem, retry=False)
        else:
            self._crew.start(f"hello {link.number}", self._verify(link, hello, believed))

    async def _verify(self, link: links.Link, hello: messages.Hello, believed: Believed) -> None:
        cluster = f"{hello.namespace}/{hello.cluster}"
        try:
            good = await self._verifier.verify(hello.namespace, hello.cluster, hello.credential)
        except errors.KilnError as error:
            link.refuse("NotYet", f"TaskCluster {cluster}: {error}", retry=True)
            return
        if good:
            believed(link, hello)
        else:
            message = f"not the channel token of TaskCluster {cluster}"
            link.refuse("Credential", message, retry=True)


def _problem(hello: messages.Hello) -> str:
    if len(hello.session) != 16:
        return "session: 16 bytes"
    if not 0 <= hello.slots <= MAX_SLOTS:
        return f"slots: 0 to {MAX_SLOTS}"
    if not (hello.worker and hello.pod_uid and hello.namespace and hello.cluster):
        return "worker, pod_uid, namespace and cluster must not be empty"
    return ""
