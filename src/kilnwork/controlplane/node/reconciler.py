"""Makes the processes of each Pod as its object says, and its status as the processes are.

The shell round `lifecycle` (what to do), `recipe` (how to start) and `statuses` (what to write): it
reads the cache, asks the shim, writes files and patches. Called with a key by a `kube.controller`;
repeatable at any time. `local` puts it together.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilnwork.api import meta, resource
from kilnwork.controlplane.node import (
    account,
    container,
    cri_log,
    errors,
    inputs,
    lifecycle,
    pods,
    recipe,
    shim_link,
    sources,
    statuses,
    volumes,
)
from kilnwork.kit import clock
from kilnwork.kube import cache, client, events, objects, queue
from kilnwork.kube import errors as kube_errors

log = logging.getLogger(__name__)

NOT_YET_S = 0.5
"""How soon to look again for what a container waits for; nothing tells us when it appears."""

TOKEN_AGAIN_S = 30.0
_NEVER_S = 365 * 86_400.0

_RESOURCES = {"Secret": resource.SECRETS, "ConfigMap": resource.CONFIG_MAPS}


_UNKNOWN = lifecycle.View()
_CREATING = "ContainerCreating"


@dataclass(slots=True)
class Held:
    """One Pod (by uid) that has something on this node, and what was last written about it.

    `key` is ("", uid) while its object has not been seen. `renew_at` is monotonic.
    """

    uid: str
    key: objects.Key
    folder: volumes.PodFolder
    view: lifecycle.View = _UNKNOWN
    written: dict[str, Any] | None = None
    refusal: str = ""
    renew_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the reconciler works with. `link` raises `ShimAway` while there is none."""

    kube: client.Client
    cache: cache.Cache[pods.Pod]
    queue: queue.WorkQueue
    link: Callable[[], shim_link.Link]
    accounts: account.Accounts
    recorder: events.Recorder
    facts: inputs.Facts
    folder: Path
    now: clock.Clock


class Reconciler:
    """All Pods of the node, by uid."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held: dict[str, Held] = {}
        self._early: dict[str, container.Record] = {}
        self._leaving_s: float | None = None

    # What is heard

    def on_opened(self, known: list[container.Record]) -> None:
        """A shim was found or started: these are the containers it knows."""
        by_uid: dict[str, list[container.Record]] = {}
        for record in sorted(known, key=lambda r: r.number):
            by_uid.setdefault(record.id.split("/")[0], []).append(record)
        for uid, records in by_uid.items():
            held = self._held.get(uid) or self._new(uid, self._key(uid))
            before = records[-2] if len(records) > 1 else None
            self._update(held, records[-1], before=before)
        for uid in self._held.keys() - by_uid.keys():
            held = self._held[uid]
            if held.view.last is not None and held.view.running:
                self._update(held, _lost(held.view.last, self._tools.now.wall()))

    def on_ended(self, record: container.Record) -> None:
        """The shim reports the end of a container."""
        held = self._held.get(record.id.split("/")[0])
        if held is None or held.view.last is None or held.view.last.id != record.id:
            self._early[record.id] = record  # its start has not been answered yet
            return
        self._update(held, record)

    def on_change(self, key: objects.Key, _: pods.Pod | None, new: pods.Pod | None) -> None:
        """A Pod object changed, or was found in the first list."""
        if new is not None and (held := self._held.get(new.metadata.uid)) is not None:
            held.key = key
        self._tools.queue.add(key)

    def _key(self, uid: str) -> objects.Key:
        known = (objects.key(p) for p in self._tools.cache.list() if p.metadata.uid == uid)
        return next(known, ("", uid))

    def _update(
        self, held: Held, record: container.Record, *, before: container.Record | None = None
    ) -> None:
        was_running = held.view.last is None or held.view.running
        view = held.view._replace(last=record, before=before or held.view.before)
        if was_running and record.exit_code is not None:
            view = lifecycle.ended(view, record, now=self._tools.now.monotonic())
        held.view = view
        self._tools.queue.add(held.key)

    def _new(self, uid: str, key: objects.Key) -> Held:
        held = self._held[uid] = Held(uid, key, volumes.PodFolder(self._tools.folder, uid))
        return held

    # What is asked

    @property
    def running(self) -> int:
        """How many containers run."""
        return sum(held.view.running for held in self._held.values())

    def container_log(
        self, key: objects.Key, name: str, *, previous: bool
    ) -> tuple[container.Record | str, Callable[[], bool]] | None:
        """The start whose log is asked for, and whether it still runs; None for an unknown Pod.

        If there was no such start, a text instead: why the container waits, empty for `previous`.
        """
        pod = self._tools.cache.get(key)
        if pod is None or all(c.name != name for c in pod.spec.containers):
            return None
        held = self._held.get(pod.metadata.uid)
        if held is None:
            return _CREATING, lambda: False
        if previous:
            return held.view.before or "", lambda: False
        record = held.view.last
        if record is None:
            return held.view.reason or _CREATING, lambda: False
        return record, lambda: held.view.running and held.view.last == record

    def leave(self, grace_s: float) -> None:
        """Start nothing any more and end what runs, each with at most this grace."""
        self._leaving_s = grace_s
        self.look_at_all()

    def look_at_all(self) -> None:
        """Reconcile every Pod that has something here."""
        for held in self._held.values():
            self._tools.queue.add(held.key)

    def clean(self, uids: Collection[str]) -> None:
        """Remove the folders of Pods that are neither in `uids` nor held."""
        for path in self._tools.folder.iterdir():
            if path.name not in uids and path.name not in self._held:
                volumes.PodFolder(self._tools.folder, path.name).remove()

    # What is done

    async def reconcile(self, key: objects.Key) -> float | None:
        """Bring one Pod a step further; gives when to look again."""
        pod = self._tools.cache.get(key)
        uid = pod.metadata.uid if pod is not None else ""
        for held in [h for h in self._held.values() if h.key == key and h.uid != uid]:
            await self._end_orphan(held)
        if pod is None:
            return None
        held = self._held.get(uid) or self._new(uid, key)
        held.key = key
        decision = lifecycle.decide(
            pod, held.view, now=self._tools.now.monotonic(), leaving_s=self._leaving_s
        )
        again_s = await self._carry_out(decision, pod, held)
        await self._write_status(pod, held)
        if isinstance(decision, lifecycle.Remove):
            await self._remove(pod)
        return again_s

    async def _carry_out(
        self, decision: lifecycle.Decision, pod: pods.Pod, held: Held
    ) -> float | None:
        match decision:
            case lifecycle.Refuse(message):
                self._refuse(pod, held, message)
            case lifecycle.Start(number):
                return await self._start(pod, held, number)
            case lifecycle.Wait(seconds):
                name = f"{pod.container.name} in pod {_key_text(held.key)}"
                text = f"Back-off restarting failed container {name}({held.uid})"
                self._emit(pod, events.WARNING, "BackOff", text)
                return seconds
            case lifecycle.Stop(grace_s):
                await self._stop(held, grace_s)
            case lifecycle.Rest() if held.view.running and self._renews(pod):
                return await self._renew(pod, held)
            case _:
                pass
        return None

    async def _start(self, pod: pods.Pod, held: Held, number: int) -> float | None:
        try:
            order = await self._prepare(pod, held, number)
        except errors.NotYet as error:
            self._not_yet(pod, held, reason=error.reason, message=str(error))
            return NOT_YET_S
        except errors.Unsupported as error:
            self._refuse(pod, held, str(error))
            return None
        except OSError as error:
            self._not_yet(pod, held, reason="CreateContainerError", message=str(error))
            return NOT_YET_S
        record = await self._tools.link().start(order)
        record = self._early.pop(record.id, record)
        older = held.view.before
        held.view = held.view._replace(
            last=record, before=held.view.last, reason="", message="", stop_s=None
        )
        if older is not None:
            await self._forget(older)
        if record.exit_code is None:
            return 0.0 if self._renews(pod) else None
        held.view = lifecycle.ended(held.view, record, now=self._tools.now.monotonic())
        if record.reason:
            self._emit(pod, events.WARNING, "Failed", f"Error: {record.message}")
        return 0.0

    async def _prepare(self, pod: pods.Pod, held: Held, number: int) -> container.Order:
        """Everything on disk that the container needs, and the order to start it."""
        needs = await self._needs(pod, recipe.wanted(pod, pod.container), held)
        name = pod.container.name
        done = recipe.make(pod, pod.container, needs, root=held.folder.root(name))
        held.folder.prepare(name, done)
        return container.Order(
            id=f"{held.uid}/{pod.container.name}/{number}",
            argv=done.argv,
            env=done.env,
            cwd=done.cwd,
            folder=str(held.folder.container(pod.container.name)),
        )

    async def _needs(self, pod: pods.Pod, wants: Iterable[inputs.Want], held: Held) -> recipe.Needs:
        """Objects and fresh tokens; the account's files are written here."""
        found = await self._find(wants, pod.metadata.namespace)
        tokens, soonest_s = {}, _NEVER_S
        for want in dict.fromkeys(sources.tokens(pod)):
            tokens[want], renew_s = await self._tools.accounts.token(pod, want)
            soonest_s = min(soonest_s, renew_s)
        if self._gives_account(pod):
            renew_s = await self._tools.accounts.write(pod, held.folder)
            soonest_s = min(soonest_s, renew_s)
        held.renew_at = self._tools.now.monotonic() + soonest_s
        return recipe.Needs(found, self._tools.facts, tokens)

    def _gives_account(self, pod: pods.Pod) -> bool:
        return recipe.uses_account(pod, mounts_accounts=self._tools.facts.mounts_accounts)

    def _renews(self, pod: pods.Pod) -> bool:
        """True if something in its volumes ends with time."""
        return self._gives_account(pod) or any(True for _ in sources.tokens(pod))

    async def _find(self, wants: Iterable[inputs.Want], namespace: str) -> inputs.Found:
        keys = list(dict.fromkeys((want.kind, want.name) for want in wants))
        got = await asyncio.gather(*(self._get(kind, name, namespace) for kind, name in keys))
        return dict(zip(keys, got, strict=True))

    async def _get(self, kind: inputs.Kind, name: str, namespace: str) -> meta.JsonObject | None:
        try:
            return await self._tools.kube.get(_RESOURCES[kind], name, namespace)
        except (kube_errors.NotFound, kube_errors.Invalid):
            return None
        except kube_errors.Forbidden as error:  # the Node authorizer learns of a Pod a moment later
            raise errors.NotYet(str(error)) from error

    async def _stop(self, held: Held, grace_s: float) -> None:
        if held.view.last is not None:
            await self._tools.link().stop(held.view.last.id, grace_s=grace_s)
            held.view = held.view._replace(stop_s=grace_s)

    async def _renew(self, pod: pods.Pod, held: Held) -> float:
        left_s = held.renew_at - self._tools.now.monotonic()
        if left_s > 0:
            return left_s
        try:
            needs = await self._needs(pod, sources.wanted(pod), held)
            context = sources.Context(pod, needs.found, needs.tokens, needs.facts)
            held.folder.fill(sources.volume(v, context) for v in pod.spec.volumes or ())
        except (errors.NotYet, kube_errors.KubeError, OSError) as error:
            facts = {"pod_namespace": held.key[0], "pod": held.key[1], "error": str(error)}
            log.warning("service account token not renewed", extra=facts)
            return TOKEN_AGAIN_S
        return max(0.0, held.renew_at - self._tools.now.monotonic())

    async def _end_orphan(self, held: Held) -> None:
        """Its object is gone: end the container, then forget everything about it."""
        if held.view.running:
            if held.view.stop_s is None or held.view.stop_s > lifecycle.UNSEEN_GRACE_S:
                await self._stop(held, lifecycle.UNSEEN_GRACE_S)
            return
        for record in (held.view.last, held.view.before):
            if record is not None:
                await self._tools.link().forget(record.id)
        self._held.pop(held.uid, None)
        await asyncio.to_thread(held.folder.remove)

    async def _forget(self, record: container.Record) -> None:
        await self._tools.link().forget(record.id)
        path = container.log_path(record)
        for log_path in (path, cri_log.previous(path)):
            log_path.unlink(missing_ok=True)

    async def _remove(self, pod: pods.Pod) -> None:
        """Nothing of it is left here: the object may go."""
        m = pod.metadata
        try:
            await self._tools.kube.delete(resource.PODS, m.name, m.namespace, uid=m.uid, grace_s=0)
        except (kube_errors.NotFound, kube_errors.Conflict):
            return

    # What is said

    def _not_yet(self, pod: pods.Pod, held: Held, *, reason: str, message: str) -> None:
        if message != held.view.message:
            self._emit(pod, events.WARNING, "Failed", f"Error: {message}")
        held.view = held.view._replace(reason=reason, message=message)

    def _refuse(self, pod: pods.Pod, held: Held, message: str) -> None:
        if message != held.refusal:
            self._emit(pod, events.WARNING, statuses.UNSUPPORTED, message)
        held.refusal = message

    def _emit(self, pod: pods.Pod, kind: str, reason: str, message: str) -> None:
        self._tools.recorder.emit(events.reference(resource.PODS, pod), kind, reason, message)

    async def _write_status(self, pod: pods.Pod, held: Held) -> None:
        """Patch the status if it is not as it should be."""
        if pod.final and (held.view.last is None or held.refusal):
            return
        last = held.view.last
        if last is None and pod.metadata.deletion_timestamp is not None:
            return
        if self._leaving_s is not None and last is not None and lifecycle.restarts(pod, last):
            return  # the next server starts it again
        wanted = self._status(pod, held)
        known = pod.status if held.written is None else held.written
        if all(known.get(field) == value for field, value in wanted.items()):
            return
        m = pod.metadata
        patch = {"metadata": {"uid": m.uid}, "status": wanted}
        try:
            await self._tools.kube.merge_patch(
                resource.PODS, m.name, patch, m.namespace, subresource="status"
            )
        except (kube_errors.NotFound, kube_errors.Conflict):
            return  # it is gone, or another has its name: the watch will tell
        held.written = wanted

    def _status(self, pod: pods.Pod, held: Held) -> dict[str, Any]:
        if held.refusal:
            return statuses.refused(pod, held.refusal)
        return statuses.status(
            pod,
            held.view,
            address=self._tools.facts.address,
            now=self._tools.now.wall(),
            written=held.written,
        )


def _key_text(key: objects.Key) -> str:
    """`name_namespace`, as the kubelet writes Pods in messages."""
    return f"{key[1]}_{key[0]}"


def _lost(record: container.Record, now: float) -> container.Record:
    """A container that no shim knows any more."""
    return record._replace(
        exit_code=container.UNKNOWN,
        finished_at=now,
        reason=container.UNSEEN,
        message="the record of the container was lost",
    )
