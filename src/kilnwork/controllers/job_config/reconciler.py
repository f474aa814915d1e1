"""The shell of the JobConfig controller: reads the facts about one JobConfig and carries out its
plan.

Used by `assembly`. Decides nothing: see `plan` and `status`.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from kilnwork.api import (
    job,
    job_config,
    job_from_config,
    kinds,
    knative_service_rendering,
    meta,
    reasons,
)
from kilnwork.controllers import ports, reconciler_context, status_writer
from kilnwork.controllers.job import plan as job_plan
from kilnwork.controllers.job_config import pending_ticks, plan, status
from kilnwork.jobs import errors as jobs_errors
from kilnwork.kube import errors, events, queue

SERVICE_AGAIN_S = 30.0
"""Seconds between attempts to create a Service that the API server refuses: Knative may be
installed meanwhile."""

Key = tuple[str, str]


class _KnownState(msgspec.Struct, gc=False):
    """The state of one JobConfig that is kept in memory between passes."""

    uid: str
    reading: plan.ParsedConfig
    """The parsed JobConfig, of the newest object generation."""
    held: float | None = None
    """Since when a status waits to be written (monotonic seconds)."""
    made: dict[int, float] = msgspec.field(default_factory=dict)
    """Ticks whose Jobs were created or seen, and when to ask the API server for a Job that the
    cache lacks (monotonic seconds)."""
    taken: frozenset[int] = frozenset()
    """Ticks whose Jobs' names are taken by other objects."""
    gone: frozenset[int] = frozenset()
    """Ticks whose Jobs were deleted before the engine had them."""
    refusal: pending_ticks.JobRefusal | None = None
    """Why Jobs cannot be created."""
    upcoming: plan.Upcoming | None = None
    """The next ticks found by the last pass."""
    limits: object = None
    """The concurrency limit known to the engine."""
    cycle: tuple[str, ...] = ()
    """The cycle of JobConfigs that depend on each other: all of them are reconciled when it
    forms or ends."""
    served: int = 0
    """Object generation whose Service exists."""

    def keep(self, ticks: set[int]) -> None:
        """Forget all ticks except `ticks`."""
        self.made = {tick: check for tick, check in self.made.items() if tick in ticks}
        if self.taken or self.gone:  # otherwise each object would get empty sets of its own
            self.taken &= ticks
            self.gone &= ticks
        if self.refusal is not None and ticks.isdisjoint(self.refusal.since):
            self.refusal = None


class Reconciler:
    """The reconciler of JobConfigs; each pass handles one JobConfig."""

    def __init__(
        self, context: reconciler_context.ReconcilerContext, work: queue.WorkQueue
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._hub: ports.JobHub | None = None
        self._writer = status_writer.StatusWriter(
            context.kube, kinds.JOB_CONFIGS, job_config.JobConfigStatus
        )
        self._memories: dict[Key, _KnownState] = {}
        self._keys: dict[str, Key] = {}
        """Keys of the existing JobConfigs, by uid."""

    def use(self, hub: ports.JobHub) -> None:
        """Set the engine of jobs to query."""
        self._hub = hub

    # Event handlers: each one only queues the keys that must be reconciled.

    def config_changed(
        self, key: Key, old: job_config.JobConfig | None, new: job_config.JobConfig | None
    ) -> None:
        """Handle the creation, change or deletion of a JobConfig."""
        if old is not None and new is not None and self._writer.is_own_write(old, new):
            return
        self._queue.add(key)

    def job_changed(self, key: Key, old: job.Job | None, new: job.Job | None) -> None:
        """Handle the creation, change or deletion of a Job."""
        seen = new or old
        owner = None if seen is None else job_from_config.config_of(seen)
        if owner is None:
            return
        if old is None and new is not None and not new.status.phase:
            return  # when the engine has it, `group_changed` follows
        known = self._memories.get((key[0], owner.name))
        if new is None and known is not None and known.uid == owner.uid and old is not None:
            tick = job_from_config.tick_of(old)
            if tick in known.made:
                known.made[tick] = 0.0  # if the engine did not have it, check that now
                self._queue.add((key[0], owner.name))
        if old is None or new is None or old.status.phase != new.status.phase:
            self._queue_later((key[0], owner.name))

    def group_changed(self, namespace: str, config: str) -> None:
        """Handle a change of a Job's phase, given the namespace and the uid of its JobConfig."""
        key = self._keys.get(config)
        if key is not None and key[0] == namespace:
            self._queue_later(key)

    def clock_set(self) -> None:
        """Handle a step of the wall clock, after which ticks are due earlier or later."""
        for key, known in self._memories.items():
            if known.reading.schedule is not None:
                self._queue.add(key)

    def _queue_later(self, key: Key) -> None:
        """Queue a JobConfig whose counts have changed, with a delay until its status may be
        written, so that one pass handles many changes.
        """
        known = self._memories.get(key)
        if known is None:
            self._queue.add(key)
            return
        if known.held is None:
            known.held = self._clock.monotonic()
        self._queue.add(key, status.HOLD_S)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a JobConfig; return in how many seconds to make the next one, if no
        change comes first.

        This replaces the time that the previous pass returned.
        """
        self._queue.cancel(key)
        config = self._caches.job_configs.get(key)
        if config is None or config.metadata.deletion_timestamp is not None:
            await self._forget(key, config)
            return None
        known = self._memory(key, config)
        self._set_limits(known, config)
        self._look_for_ring(known, config)
        check_s = await self._check_made(known, config)
        decided = self._decide(known, config)
        if decided.decision is not None:
            try:
                await self._engine().decide(decided.decision)
            except jobs_errors.TickDecided:
                return 1.0  # another manager leads, or our cache is behind
            for one in decided.warnings:
                self._emit_event(config, one.reason, one.message)
            decided = self._decide(known, config)
        if decided.make:
            before, check_s = known.refusal, pending_ticks.CHECK_S
            await self._make_all(known, config, decided.make)
            if known.refusal is not before:
                decided = self._decide(known, config)
        for surplus in decided.delete:
            await reconciler_context.delete(self._client, kinds.JOBS, surplus.metadata)
        waits = [decided.again_s, check_s, await self._write(known, config, decided.status)]
        if decided.service is not None:
            waits.append(await self._serve(known, config, decided.service))
        return min((w for w in waits if w is not None), default=None)

    # Reading

    def _decide(self, known: _KnownState, config: job_config.JobConfig) -> plan.Plan:
        decided = plan.decide(self._facts(known, config))
        known.upcoming = decided.upcoming
        return decided

    def _facts(self, known: _KnownState, config: job_config.JobConfig) -> plan.Facts:
        uid = config.metadata.uid
        engine = self._engine()
        jobs, row = tuple(self._caches.jobs.owned_by(uid)), engine.schedule(uid)
        now = self._clock.monotonic()
        waiting = set() if row is None else set(row.pending)
        known.keep(waiting)
        for tick in waiting.intersection(map(job_from_config.tick_of, jobs)) if waiting else ():
            known.made.setdefault(tick, now + pending_ticks.CHECK_S)
        return plan.Facts(
            config=msgspec.structs.replace(config, status=self._writer.current(config)),
            reading=known.reading,
            jobs=jobs,
            group=engine.group(uid),
            row=row,
            pending=pending_ticks.PendingTicks(
                made=frozenset(known.made),
                taken=known.taken,
                gone=known.gone,
                refusal=known.refusal,
                now=now,
            ),
            upcoming=known.upcoming,
            cycle=known.cycle,
            now=self._clock.wall(),
        )

    async def _check_made(self, known: _KnownState, config: job_config.JobConfig) -> float | None:
        """Check whether created Jobs were deleted before the engine had them; return the seconds
        until the next check.
        """
        row, waits = self._engine().schedule(known.uid), []
        for tick in () if row is None else row.pending:
            key = (
                config.metadata.namespace,
                job_from_config.scheduled_name(config.metadata.name, tick),
            )
            if tick not in known.made or self._caches.jobs.get(key) is not None:
                continue
            left_s = known.made[tick] - self._clock.monotonic()
            if left_s <= 0:
                if await self._read(*key) is None:
                    known.gone |= {tick}
                    del known.made[tick]
                    continue
                left_s = pending_ticks.CHECK_S
                known.made[tick] = self._clock.monotonic() + left_s
            waits.append(left_s)
        return min(waits, default=None)

    def _memory(self, key: Key, config: job_config.JobConfig) -> _KnownState:
        known = self._memories.get(key)
        if known is None or known.uid != config.metadata.uid:
            if known is not None:
                self._writer.forget(known.uid)
                self._keys.pop(known.uid, None)
            known = self._memories[key] = _KnownState(config.metadata.uid, plan.parse(config))
            self._keys[known.uid] = key
        elif known.reading.generation != config.metadata.generation:
            known.reading, known.upcoming = plan.parse(config), None
        return known

    def _look_for_ring(self, known: _KnownState, config: job_config.JobConfig) -> None:
        """Find a dependency cycle of JobConfigs that contains `config`; each member of the cycle
        reports it.
        """
        metadata = config.metadata
        found: tuple[str, ...] = ()
        if any(plan.depends_on(config)):
            waits_for = partial(self._waits_for, metadata.namespace)
            found = job_plan.find_cycle(metadata.name, waits_for)
        if found != known.cycle:
            self._look_at({*known.cycle, *found} - {metadata.name}, metadata.namespace)
            known.cycle = found

    def _waits_for(self, namespace: str, name: str) -> Iterator[str]:
        found = self._caches.job_configs.get((namespace, name))
        if found is not None:
            yield from plan.depends_on(found)

    def _look_at(self, names: Iterable[str], namespace: str) -> None:
        for name in names:
            self._queue.add((namespace, name))

    def _set_limits(self, known: _KnownState, config: job_config.JobConfig) -> None:
        if known.limits != config.spec.concurrency:
            self._engine().limit(job_plan.group_of(config))
            known.limits = config.spec.concurrency

    async def _forget(self, key: Key, config: job_config.JobConfig | None) -> None:
        known = self._memories.pop(key, None)
        if known is not None:
            self._writer.forget(known.uid)
            self._keys.pop(known.uid, None)
            self._look_at(set(known.cycle) - {key[1]}, key[0])
            if config is None:
                await self._engine().forget_schedule(known.uid)

    # Writing

    async def _make_all(
        self, known: _KnownState, config: job_config.JobConfig, ticks: tuple[int, ...]
    ) -> None:
        """Create the missing Jobs of ticks, oldest tick first.

        After a refusal the other ticks wait, too: their Jobs differ only in name and time.
        """
        for position, tick in enumerate(ticks):
            try:
                await self._make(known, config, tick)
            except (errors.Invalid, errors.Forbidden, errors.NotFound) as error:
                name = job_from_config.scheduled_name(config.metadata.name, tick)
                text = f"Job {name} cannot be made: {error}"
                if known.refusal is None:
                    self._emit_event(config, reasons.ConfigReason.JOB_NOT_MADE, text)
                known.refusal = pending_ticks.note_refusal(
                    known.refusal, ticks[position:], text=text, now=self._clock.monotonic()
                )
                return
            known.refusal = pending_ticks.note_success(known.refusal)
        known.refusal = None

    async def _make(self, known: _KnownState, config: job_config.JobConfig, tick: int) -> None:
        """Create the Job of a tick unless it exists. Raises ApiError."""
        metadata = config.metadata
        body = job_from_config.new_job(config, tick=tick)
        name = body["metadata"]["name"]
        found = self._caches.jobs.get((metadata.namespace, name))
        if found is None:
            try:
                await self._client.create(kinds.JOBS, body, metadata.namespace)
            except errors.AlreadyExists:
                found = await self._read(metadata.namespace, name)
        if found is None or _is_of_tick(found, config, tick):
            known.made[tick] = self._clock.monotonic() + pending_ticks.CHECK_S
            return
        text = f"Job {name} exists and was not made by this schedule: its tick makes no Job"
        self._emit_event(config, reasons.ConfigReason.NAME_TAKEN, text)
        known.taken |= {tick}
        self._queue.add((metadata.namespace, metadata.name))

    async def _serve(
        self, known: _KnownState, config: job_config.JobConfig, service: meta.JsonObject
    ) -> float | None:
        """Create or change the Service that a JobConfig owns; return the seconds until the next
        try.
        """
        generation = config.metadata.generation
        if known.served == generation:
            return None
        try:
            await self._client.apply(
                knative_service_rendering.SERVICES, service, manager="kilnwork", force=True
            )
        except (errors.NotFound, errors.Forbidden, errors.Invalid, errors.Conflict) as error:
            self._emit_event(config, "ServiceNotMade", f"its Service of Knative: {error}")
            return SERVICE_AGAIN_S
        known.served = generation
        return None

    async def _read(self, namespace: str, name: str) -> job.Job | None:
        """Return a Job, read from the API server because the cache may lack it; None if it was
        deleted again.
        """
        try:
            return await self._client.get(kinds.JOBS, name, namespace, type=job.Job)
        except errors.NotFound:
            return None

    async def _write(
        self, known: _KnownState, config: job_config.JobConfig, wanted: job_config.JobConfigStatus
    ) -> float | None:
        """Write the status of a JobConfig if it is due; return in how many seconds it will be."""
        current, now = self._writer.current(config), self._clock.monotonic()
        delay_s = status.delay_s(current, wanted)
        if delay_s is None:
            known.held = None
            return None
        if known.held is None:
            known.held = now
        wait_s = known.held + delay_s - now
        if wait_s > 0:
            return wait_s
        try:
            await self._writer.write(config, wanted)
        except errors.NotFound:
            return None
        known.held = None
        return None

    def _emit_event(self, config: job_config.JobConfig, reason: str, message: str) -> None:
        self._emit(events.reference(kinds.JOB_CONFIGS, config), "Warning", reason, message)

    def _engine(self) -> ports.JobHub:
        if self._hub is None:
            raise errors.NotSynced("the engine of jobs is not there yet")
        return self._hub


def _is_of_tick(found: job.Job, config: job_config.JobConfig, tick: int) -> bool:
    """Return whether a Job is the scheduled Job of a tick of this JobConfig, not a backfill."""
    owners = found.metadata.owner_references
    is_ours = any(owner.uid == config.metadata.uid for owner in owners)
    return is_ours and job_from_config.tick_of(found) == tick
