"""Authentication: checks a peer's first frame before the machine gets any input from the peer.

Used by `peers`. Agents, executor processes, drivers, sidecars and call processes present a token,
which the `TokenVerifier` checks. A slot presents the secret that its agent gave it; the agent has
announced the secret's digest before. A refusal gives the reason and tells whether to try again.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Container

from kilnwork.api import task
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages, ports
from kilnwork.dispatch.hub import links
from kilnwork.kit import coroutines, errors

MAX_SLOTS = 10_000
"""Maximum number of slots of one worker. After so many new secrets, those of slots that have ended
are dropped.
"""

_EXECUTOR = "executor"
"""Role of an executor process in its Hello."""

_TokenHello = messages.Hello | messages.DriverHello | messages.AttemptHello

OnAuthenticated = Callable[[links.Link, messages.AnyHello], None]


class Authenticator:
    """Checks the Hello of each link; checks of different links run concurrently.

    `on_authenticated` is called for each link whose Hello is valid; other links are refused.
    """

    def __init__(
        self,
        verifier: ports.TokenVerifier,
        background: coroutines.BackgroundWork,
        on_authenticated: OnAuthenticated,
    ) -> None:
        self.epoch = 0
        self._verifier = verifier
        self._background = background
        self._on_authenticated = on_authenticated
        self._digests: dict[bytes, bytes] = {}
        self._most = MAX_SLOTS

    def announce_slot(self, slot: bytes, digest: bytes, *, living: Container[bytes]) -> None:
        """Store the SHA-256 of a slot's secret.

        If there are very many, first drop the digests of slots that are not `living`.
        """
        if len(self._digests) >= self._most:
            self._digests = {s: d for s, d in self._digests.items() if s in living}
            # Twice the number of living slots, so that dropping costs a constant time per
            # announcement.
            self._most = 2 * len(self._digests) + MAX_SLOTS
        self._digests[slot] = digest

    def forget_slot(self, slot: bytes) -> None:
        """Remove the digest of a slot that has ended."""
        self._digests.pop(slot, None)

    def check(self, link: links.Link, hello: messages.AnyHello) -> None:
        """Accept or refuse a Hello, now or when the verifier has responded."""
        if hello.version != messages.VERSION:
            message = f"version {hello.version} is not spoken here, {messages.VERSION} is"
            link.refuse("Version", message, retry=False)
        # The peer has seen a later dispatcher: this one has lost the journal, or reads a copy of
        # it.
        elif hello.epoch > self.epoch:
            message = f"epoch {hello.epoch} was seen elsewhere, this dispatcher is {self.epoch}"
            link.refuse("Epoch", message, retry=True)
        elif problem := _problem(hello):
            link.refuse("Malformed", problem, retry=False)
        elif isinstance(hello, messages.SlotHello):
            self._check_slot(link, hello)
        else:
            self._check_token(link, hello)

    def _check_slot(self, link: links.Link, hello: messages.SlotHello) -> None:
        announced = self._digests.get(hello.slot)
        if announced is None:
            # The slot has a link of its own, which may be faster than its agent's.
            message = f"slot {hello.slot.hex()} was not announced by its agent"
            link.refuse("NotYet", message, retry=True)
            return
        digest = hashlib.sha256(hello.credential.encode()).digest()
        # Compared in constant time: the peer is not trusted yet.
        if hmac.compare_digest(digest, announced):
            self._on_authenticated(link, hello)
        else:
            message = f"not the secret of slot {hello.slot.hex()}"
            link.refuse("Credential", message, retry=False)

    def _check_token(self, link: links.Link, hello: _TokenHello) -> None:
        if isinstance(hello, messages.Hello) and hello.role == _EXECUTOR:
            claim = hello.cluster
            name = hello.cluster.removeprefix(task.executor_queue(""))
            verdict = self._verifier.verify_executor(name, hello.namespace, hello.credential)
        elif isinstance(hello, messages.Hello):
            claim = f"TaskCluster {hello.namespace}/{hello.cluster}"
            verdict = self._verifier.verify(hello.namespace, hello.cluster, hello.credential)
        elif isinstance(hello, messages.AttemptHello):
            claim = f"Pod {hello.namespace}/{hello.pod}"
            verdict = self._verifier.verify_attempt(
                hello.ref, hello.namespace, hello.pod, hello.credential
            )
        else:
            claim = f"namespace {hello.namespace}"
            verdict = self._verifier.verify_driver(hello.namespace, hello.credential)
        self._background.start(
            f"hello {link.number}", self._verify(link, hello, claim=claim, verdict=verdict)
        )

    async def _verify(
        self,
        link: links.Link,
        hello: _TokenHello,
        *,
        claim: str,
        verdict: Awaitable[bool],
    ) -> None:
        try:
            accepted = await verdict
        except channel_errors.LinkRefused as error:
            link.refuse(error.reason, error.message, retry=error.retry)
            return
        # The verifier could not decide, which says nothing about the token.
        except errors.KilnError as error:
            link.refuse("NotYet", f"{claim}: {error}", retry=True)
            return
        if accepted:
            self._on_authenticated(link, hello)
        elif isinstance(hello, messages.Hello):
            kind = "a token for" if hello.role == _EXECUTOR else "the channel token of"
            link.refuse("Credential", f"not {kind} {claim}", retry=True)
        elif isinstance(hello, messages.AttemptHello):
            message = f"not the token of {claim}, or not the Pod of attempt {hello.ref}"
            link.refuse("Credential", message, retry=True)
        else:
            link.refuse("Credential", f"not a token for drivers in {claim}", retry=False)


def _problem(hello: messages.AnyHello) -> str:
    if isinstance(hello, messages.SlotHello):
        return "" if len(hello.slot) == 16 else "slot: 16 bytes"
    if isinstance(hello, messages.AttemptHello):
        return "" if hello.namespace and hello.pod else "namespace and pod must not be empty"
    if len(hello.session) != 16:
        return "session: 16 bytes"
    if isinstance(hello, messages.DriverHello):
        return "" if hello.namespace else "namespace must not be empty"
    if hello.role == _EXECUTOR:
        return _executor_problem(hello)
    if hello.role != "worker":
        return f"no role {hello.role[:64]!r}"
    if not 0 <= hello.slots <= MAX_SLOTS:
        return f"slots: 0 to {MAX_SLOTS}"
    if not (hello.worker and hello.pod_uid and hello.namespace and hello.cluster):
        return "worker, pod_uid, namespace and cluster must not be empty"
    return ""


def _executor_problem(hello: messages.Hello) -> str:
    """Return why an executor's Hello is refused, or "".

    An executor serves all namespaces, or one if it is external; it has slots but no slot processes,
    and no Pod that the dispatcher knows.
    """
    external = task.is_external_queue(hello.cluster)
    known = external or hello.cluster == task.executor_queue("http")
    if not known or external != bool(hello.namespace):
        return f"no executor {hello.cluster[:64]!r}"
    if not 1 <= hello.slots <= MAX_SLOTS or not (hello.worker and hello.pod_uid):
        return f"slots must be 1 to {MAX_SLOTS}, worker and pod_uid not empty"
    return "an executor has no slot processes" if hello.processes else ""
