"""Reconciler of Pods: makes processes match Pod objects, and the status match the processes.

The imperative shell around `pod_decisions` (what to do), `container_preparation` (how to start) and
`statuses` (what to write): it reads the cache, calls the shim and patches the status. A
`kube.controller` calls it with a key, and may repeat a call at any time. `local_node` assembles it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from kilnwork.controlplane.node import (
    container_preparation,
    errors,
    hooks,
    log_writer,
    pod_decisions,
    pod_reports,
    pod_state,
    pod_types,
    probes,
    shim_container,
    shim_link,
    termination_messages,
    volumes,
)
from kilnwork.kit import backoff, clock, coroutines
from kilnwork.kube import cache, objects, queue
from kilnwork.kube import errors as kube_errors

log = logging.getLogger(__name__)

INPUT_RETRIES = backoff.Backoff(base_s=0.5, max_s=8.0, factor=1.2)
"""Delays between checks for an object that a container waits for: these objects are not watched."""

_CREATING = "ContainerCreating"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerParts:
    """The parts that the reconciler uses."""

    cache: cache.Cache[pod_types.Pod]
    queue: queue.WorkQueue
    link: Callable[[], shim_link.ShimLink]
    """Raises `ShimAway` while there is no link to the shim."""
    run_inside: probes.RunInside
    preparer: container_preparation.FilePreparer
    reporter: pod_reports.PodReporter
    directory: Path
    links: Path
    now: clock.Clock


class Reconciler:
    """Reconciles all Pods of the node, identified by uid."""

    def __init__(self, tools: ReconcilerParts) -> None:
        self._tools = tools
        self._held: dict[str, pod_state.PodState] = {}
        self._keyed: dict[objects.Key, set[str]] = {}
        """Key → uids: an old and a new Pod of the same name may be here at the same time."""
        self._early: dict[str, shim_container.ContainerRecord] = {}
        self._leaving_s: float | None = None
        self._background = coroutines.BackgroundWork("container hooks")
        self._probers = probes.Probers(
            tools.run_inside, self._on_probed, address=tools.reporter.address, now=tools.now
        )
        self._hooks = hooks.Hooks(tools.run_inside, self._probers)
        self._reporter = tools.reporter

    async def stop(self) -> None:
        """Stop probes and hooks. Containers keep running."""
        await self._probers.stop()
        await self._background.stop()

    # Notifications

    def on_opened(self, known: list[shim_container.ContainerRecord]) -> None:
        """Take over the containers of a shim that was just found or started."""
        by_name: dict[tuple[str, str], list[shim_container.ContainerRecord]] = {}
        for record in sorted(known, key=lambda r: r.number):
            by_name.setdefault(_name(record), []).append(record)
        for (uid, name), records in by_name.items():
            state = self._held.get(uid) or self._new(uid, self._key(uid))
            before = records[-2] if len(records) > 1 else None
            self._update(state, name, records[-1], before=before)
            state.change(name, stop_s=None)  # a new shim has no deadline for it: stop it again
        for state in self._held.values():
            for name, view in state.views.items():
                # The container's shim and record are gone, so no event will report its end.
                if view.running and view.last is not None and (state.uid, name) not in by_name:
                    lost = shim_container.as_lost(view.last, self._tools.now.wall())
                    self._update(state, name, lost)

    def on_ended(self, record: shim_container.ContainerRecord) -> None:
        """Record that a container has ended, as reported by the shim."""
        uid, name = _name(record)
        state = self._held.get(uid)
        last = state.view(name).last if state is not None else None
        if state is None or last is None or last.id != record.id:
            self._early[record.id] = record  # reported before the reply to its start was processed
            return
        self._update(state, name, record)

    def on_change(
        self, key: objects.Key, _: pod_types.Pod | None, new: pod_types.Pod | None
    ) -> None:
        """Queue a Pod whose object has changed, or that was in the first list."""
        if new is not None and (state := self._held.get(new.metadata.uid)) is not None:
            self._set_key(state, key)
        self._tools.queue.add(key)

    def _key(self, uid: str) -> objects.Key:
        keys = (objects.key(p) for p in self._tools.cache.list() if p.metadata.uid == uid)
        return next(keys, ("", uid))

    def _update(
        self,
        state: pod_state.PodState,
        name: str,
        record: shim_container.ContainerRecord,
        *,
        before: shim_container.ContainerRecord | None = None,
    ) -> None:
        view = state.view(name)
        # For the back-off, an end that is reported twice must count once.
        was_running = view.last is None or view.running
        record = termination_messages.with_message(self._tools.cache.get(state.key), name, record)
        view = view._replace(last=record, before=before or view.before)
        if was_running and record.exit_code is not None:
            view = pod_decisions.after_end(view, record, now=self._tools.now.monotonic())
            self._probers.drop(record.id)
        state.views[name] = view
        self._tools.queue.add(state.key)

    def _on_probed(
        self, record: shim_container.ContainerRecord, finding: probes.ProbeFinding
    ) -> None:
        """Record the result of a probe."""
        uid, name = _name(record)
        state = self._held.get(uid)
        # The result is late: it belongs to an earlier start.
        if state is None or state.view(name).last != record:
            return
        pod = self._tools.cache.get(state.key)
        if finding.message and pod is not None:
            self._reporter.warn(pod, finding.reason, finding.message)
        match finding.kind, finding.healthy:
            case ("Startup", True):
                state.change(name, started=True)
            case ("Readiness", bool()):
                state.change(name, ready=finding.healthy)
            case ("Startup" | "Liveness", False):
                state.change(name, failing=finding.kind)
                if pod is not None:
                    text = (
                        f"Container {name} failed {finding.kind.lower()} probe, will be restarted"
                    )
                    self._reporter.normal(pod, "Killing", text)
            case _:
                return
        self._tools.queue.add(state.key)

    def _new(self, uid: str, key: objects.Key) -> pod_state.PodState:
        state = pod_state.PodState(uid, key, self._directory(uid))
        self._held[uid] = state
        self._keyed.setdefault(key, set()).add(uid)
        return state

    def _set_key(self, state: pod_state.PodState, key: objects.Key) -> None:
        """Record the key of the Pod's object."""
        if state.key != key:
            self._drop_key(state)
            state.key = key
            self._keyed.setdefault(key, set()).add(state.uid)

    def _drop_key(self, state: pod_state.PodState) -> None:
        uids = self._keyed[state.key]
        uids.discard(state.uid)
        if not uids:
            del self._keyed[state.key]

    # Queries and orders

    @property
    def running(self) -> int:
        """Return the number of running containers."""
        return sum(state.running for state in self._held.values())

    def container_log(
        self, key: objects.Key, name: str, *, previous: bool
    ) -> tuple[shim_container.ContainerRecord | str, Callable[[], bool]] | None:
        """Return the record of the container start whose log is requested.

        Returns None for an unknown Pod. If there was no such start, a text replaces the record: why
        the container waits, or "" for `previous`. The second value is a function that returns
        whether this start still runs.
        """
        pod = self._tools.cache.get(key)
        if pod is None or pod.container(name) is None:
            return None
        state = self._held.get(pod.metadata.uid)
        if state is None:
            return _CREATING, lambda: False
        if previous:
            return state.view(name).before or "", lambda: False
        record = state.view(name).last
        if record is None:
            return state.view(name).reason or _CREATING, lambda: False
        return record, lambda: state.view(name).running and state.view(name).last == record

    def leave(self, grace_s: float) -> None:
        """Begin to stop all containers, each with a grace period of at most `grace_s` seconds.

        Pods that are being deleted already keep their own grace period. No container is started
        from then on.
        """
        self._leaving_s = grace_s
        self.enqueue_all()

    def enqueue_all(self) -> None:
        """Queue every Pod that has containers or files here."""
        for state in self._held.values():
            self._tools.queue.add(state.key)

    def clean(self, uids: Collection[str]) -> None:
        """Remove the directories of Pods that are neither in `uids` nor in memory."""
        for path in self._tools.directory.iterdir():
            if path.name not in uids and path.name not in self._held:
                self._directory(path.name).remove()

    # Reconciling

    async def reconcile(self, key: objects.Key) -> float | None:
        """Reconcile one Pod. Return the seconds until the next check, or None."""
        pod = self._tools.cache.get(key)
        uid = pod.metadata.uid if pod is not None else ""
        # Earlier Pods of this name, whose objects are gone, are stopped before the new one starts.
        for other in self._keyed.get(key, set()) - {uid}:
            await self._stop_orphan(self._held[other])
        if pod is None:
            return None
        state = self._held.get(uid) or self._new(uid, key)
        self._set_key(state, key)
        self._reporter.report_ignored(pod, state)
        self._recall(pod, state)
        now = pod_decisions.DecisionTime(
            self._tools.now.monotonic(), self._tools.now.wall(), self._leaving_s
        )
        decided = pod_decisions.decide(pod, state.views, now)
        looks = [await self._carry_out(decision, pod, state) for decision in decided]
        looks.append(await self._probe_and_refresh(pod, state))
        left_s = pod_decisions.deadline_left_s(pod, now.wall)
        looks.append(left_s if left_s is not None and left_s > 0 else None)
        looks.append(
            await self._reporter.write_status(pod, state, leaving=self._leaving_s is not None)
        )
        # Removed after the status is written: clients must see how the Pod ended.
        if pod_decisions.RemovePod() in decided:
            await self._reporter.remove(pod)
        return min((max(0.0, look) for look in looks if look is not None), default=None)

    def _recall(self, pod: pod_types.Pod, state: pod_state.PodState) -> None:
        """Take over what the node knows only from the status of the Pod. Does so once per Pod.

        The status may have starts of containers that no shim remembers, and results of probes.
        """
        if state.recalled:
            return
        state.recalled = True
        for wanted in (*pod.all_containers, *pod.ephemeral_containers):
            name, entry = wanted.name, pod.shown(wanted.name)
            last = state.view(name).last
            if last is None:
                record = pod_decisions.recall_start(pod, name, wall=self._tools.now.wall())
                if record is not None:
                    directory = str(state.directory.container(name))
                    state.change(name, last=record._replace(directory=directory))
            elif state.view(name).running:
                started = wanted.startup_probe is None or bool(entry.get("started"))
                ready = wanted.readiness_probe is None or bool(entry.get("ready"))
                state.change(name, started=started, ready=ready)
            else:  # it may have ended without a server, and the shim reads no message
                state.change(name, last=termination_messages.with_message(pod, name, last))

    async def _carry_out(
        self, decision: pod_decisions.Decision, pod: pod_types.Pod, state: pod_state.PodState
    ) -> float | None:
        match decision:
            case pod_decisions.RefusePod(message):
                self._reporter.report_refused(pod, state, message)
            case pod_decisions.StartContainer(name, number):
                return await self._start(pod, state, name, number=number)
            case pod_decisions.WaitToStart(name, seconds):
                where = f"{name} in pod {_key_text(state.key)}"
                text = f"Back-off restarting failed container {where}({state.uid})"
                self._reporter.warn(pod, "BackOff", text)
                return seconds
            case pod_decisions.StopContainer(name, grace_s):
                await self._stop(pod, state, name, grace_s=grace_s)
            case pod_decisions.StartMore():
                return 0.0
            case _:
                pass
        return None

    async def _start(
        self, pod: pod_types.Pod, state: pod_state.PodState, name: str, *, number: int
    ) -> float | None:
        wanted = pod.container(name)
        assert wanted is not None  # noqa: S101 - decided from this very Pod
        try:
            order = await self._tools.preparer.order(pod, wanted, state, number=number)
        except errors.InputsNotReady as error:
            return self._wait(pod, state, name, error)
        except errors.Unsupported as error:
            self._reporter.report_cannot_start(pod, state, wanted, error)
            return None
        except OSError as error:
            why = errors.InputsNotReady(str(error), reason="CreateContainerError")
            return self._wait(pod, state, name, why)
        state.waits = 0
        if isinstance(wanted, pod_types.EphemeralContainer):
            self._reporter.report_ignored_of(pod, wanted)
        record = await self._tools.link().start(order)
        record = termination_messages.with_message(pod, name, self._early.pop(record.id, record))
        older, last = state.view(name).before, state.view(name).last
        row, start_at = state.view(name).row, state.view(name).start_at
        # The view is new, since results of probes and hooks belong to one start.
        state.views[name] = pod_decisions.ContainerView(
            last=record,
            before=last,
            row=row,
            start_at=start_at,
            started=wanted.startup_probe is None and not hooks.has_post_start(wanted),
            ready=wanted.readiness_probe is None,
        )
        # The two newest starts are kept, for `kubectl logs --previous`.
        if older is not None:
            await self._forget(older)
        if record.exit_code is None:
            if hooks.has_post_start(wanted):
                work = self._run_post_start(pod, state, wanted, record)
                self._background.start(f"postStart {record.id}", work)
            return None
        view = state.view(name)
        state.views[name] = pod_decisions.after_end(view, record, now=self._tools.now.monotonic())
        if record.reason:
            self._reporter.warn(pod, "Failed", f"Error: {record.message}")
        return 0.0

    def _wait(
        self, pod: pod_types.Pod, state: pod_state.PodState, name: str, error: errors.InputsNotReady
    ) -> float:
        self._reporter.report_waiting(pod, state, name, error)
        state.waits += 1
        return INPUT_RETRIES.delay_s(state.waits)

    async def _run_post_start(
        self,
        pod: pod_types.Pod,
        state: pod_state.PodState,
        wanted: pod_types.Container,
        record: shim_container.ContainerRecord,
    ) -> None:
        why = await self._hooks.post_start(wanted, record)
        if why:
            self._reporter.warn(pod, "FailedPostStartHook", f"PostStartHook failed: {why}")
        # Nothing is done if the container was started again meanwhile.
        if state.view(wanted.name).last == record:
            if why:
                state.change(wanted.name, failing="PostStart")
            elif wanted.startup_probe is None:
                state.change(wanted.name, started=True)
            self._tools.queue.add(state.key)

    def _directory(self, uid: str) -> volumes.PodDirectory:
        return volumes.PodDirectory(self._tools.directory, uid, links=self._tools.links)

    async def _probe_and_refresh(
        self, pod: pod_types.Pod, state: pod_state.PodState
    ) -> float | None:
        """Probe running containers and refresh files that are due.

        Returns the seconds until the next check.
        """
        for wanted in pod.all_containers:
            view = state.view(wanted.name)
            if view.running and view.last is not None and view.stop_s is None:
                self._probers.watch(wanted, view.last)
        if not self._tools.preparer.renews(pod) or not state.running:
            return None
        now = self._tools.now.monotonic()
        if state.renew_at is None or state.renew_at <= now:
            try:
                await self._tools.preparer.fill(pod, state)
            except (errors.NodeError, kube_errors.KubeError, OSError) as error:
                facts = {"pod_namespace": state.key[0], "pod": state.key[1], "error": str(error)}
                log.warning("files of volumes not written again", extra=facts)
                state.renew_at = now + container_preparation.AGAIN_S
        return (state.renew_at or now) - now

    async def _stop(
        self, pod: pod_types.Pod, state: pod_state.PodState, name: str, *, grace_s: float
    ) -> None:
        view, wanted = state.view(name), pod.container(name)
        if view.last is None:
            return
        state.change(name, stop_s=grace_s)
        self._probers.drop(view.last.id)
        # The hook runs once: a second stop only shortens the grace period.
        if not hooks.has_pre_stop(wanted) or view.stop_s is not None or grace_s <= 0:
            await self._tools.link().stop(view.last.id, grace_s=grace_s)
            return
        assert wanted is not None  # noqa: S101 - it has a hook
        work = self._run_pre_stop(pod, wanted, view.last, grace_s=grace_s)
        self._background.start(f"preStop {view.last.id}", work)

    async def _run_pre_stop(
        self,
        pod: pod_types.Pod,
        wanted: pod_types.Container,
        record: shim_container.ContainerRecord,
        *,
        grace_s: float,
    ) -> None:
        began = self._tools.now.monotonic()
        why = await self._hooks.pre_stop(wanted, record, grace_s=grace_s)
        if why:
            self._reporter.warn(pod, "FailedPreStopHook", f"PreStopHook failed: {why}")
        # The time of the hook is part of the grace period, as in the kubelet (killContainer).
        left_s = max(hooks.LEAST_S, grace_s - (self._tools.now.monotonic() - began))
        with contextlib.suppress(errors.ShimAway):  # the next reconcile asks the next shim
            await self._tools.link().stop(record.id, grace_s=left_s)

    async def _stop_orphan(self, state: pod_state.PodState) -> None:
        """Stop the containers of a Pod whose object is gone, then forget everything about it."""
        for name, view in list(state.views.items()):
            least_s = pod_decisions.UNSEEN_GRACE_S
            if view.running and view.last and (view.stop_s is None or view.stop_s > least_s):
                self._probers.drop(view.last.id)
                await self._tools.link().stop(view.last.id, grace_s=least_s)
                state.change(name, stop_s=least_s)
        # The Pod is queued again when each container ends.
        if state.running:
            return
        for record in state.records():
            await self._tools.link().forget(record.id)
        if self._held.pop(state.uid, None) is not None:
            self._drop_key(state)
        # Removed in a thread, as volumes may hold many files.
        await asyncio.to_thread(state.directory.remove)

    async def _forget(self, record: shim_container.ContainerRecord) -> None:
        await self._tools.link().forget(record.id)
        path = shim_container.log_path(record)
        for log_path in (path, log_writer.previous(path)):
            log_path.unlink(missing_ok=True)


def _name(record: shim_container.ContainerRecord) -> tuple[str, str]:
    uid, name, _ = record.id.split("/")
    return uid, name


def _key_text(key: objects.Key) -> str:
    """Return `name_namespace`, as messages of the kubelet name Pods."""
    return f"{key[1]}_{key[0]}"
