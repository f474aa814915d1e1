"""Kind JobConfig: what makes Jobs, by a schedule or on request, with options and one concurrency.

The fields of Furiko's JobConfig (execution.furiko.io/v1alpha1) under the same names; policies for
daylight saving and missed runs, and history limits. `cron` reads expressions, `schedules` decides
what is due, `options` evaluates values.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import job, meta, wire
from kilnwork.api import task as api_task

Wire = wire.Wire

MAX_NAME = 49
"""Longest name of a JobConfig: that of a scheduled Job has the tick behind it."""


class CronFormat(StrEnum):
    """How days of the week are counted."""

    STANDARD = "standard"
    """0 or 7 is Sunday."""
    QUARTZ = "quartz"
    """1 is Sunday, 7 is Saturday."""


class CronSchedule(Wire, frozen=True):
    """Times as cron expressions."""

    expression: str = ""
    """One expression; give this or `expressions`."""
    expressions: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Several expressions; where two name the same second, one Job is made."""
    timezone: str = ""
    """IANA name, or an offset such as `UTC+8`; UTC unless given."""
    format: CronFormat = CronFormat.STANDARD
    """`standard`, or `quartz`, where 1 is Sunday."""


class ScheduleConstraints(Wire, frozen=True):
    """Bounds of a schedule; a tick at a bound is within."""

    not_before: str | None = None
    """Time (RFC 3339) of the first tick at the earliest."""
    not_after: str | None = None
    """Time (RFC 3339) of the last tick at the latest."""


class GapPolicy(StrEnum):
    """What becomes of a tick whose local time a clock change leaves out."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class OverlapPolicy(StrEnum):
    """What becomes of a tick whose local time a clock change repeats."""

    FIRST = "First"
    BOTH = "Both"


class DaylightSaving(Wire, frozen=True):
    """What a change of the clocks does to ticks at fixed times of the day. Expressions that name
    every hour go through both."""

    gap: GapPolicy = GapPolicy.RUN_AFTER
    """A local time that does not exist. `RunAfter`: the tick comes at the first second after the
    gap. `Skip`: it does not come that day, as in Furiko."""
    overlap: OverlapPolicy = OverlapPolicy.FIRST
    """A local time that comes twice. `First`: the tick comes once, the first time. `Both`: it comes
    twice, as in Furiko."""


class MissedPolicy(StrEnum):
    """Which missed ticks are made up for."""

    NONE = "None"
    LATEST = "Latest"
    ALL = "All"


class MissedRuns(Wire, frozen=True):
    """What becomes of ticks that passed while no manager ran, or while clocks jumped."""

    policy: MissedPolicy = MissedPolicy.LATEST
    """`None`: they are dropped. `Latest`: the latest one runs. `All`: the latest `maxRuns` run, the
    oldest first."""
    max_runs: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """How many missed ticks run at most, with policy `All`."""
    within_seconds: Annotated[int, msgspec.Meta(ge=1, le=api_task.MAX_S)] = 86_400
    """How late a missed tick may run; older ones are dropped."""


class Schedule(Wire, frozen=True):
    """When Jobs are made."""

    cron: CronSchedule | None = None
    """Times as cron expressions."""
    disabled: bool = False
    """Make no Jobs. Ticks that pass meanwhile are not made up for."""
    constraints: ScheduleConstraints | None = None
    """Bounds of the schedule."""
    last_updated: str | None = None
    """Time (RFC 3339) up to which ticks are over; one ahead holds the schedule back until then. An
    edit makes no past tick run, with it or without."""
    daylight_saving: DaylightSaving = DaylightSaving()
    """What a change of the clocks does."""
    missed_runs: MissedRuns = MissedRuns()
    """What becomes of ticks that passed while no manager ran."""


class Concurrency(Wire, frozen=True):
    """How many Jobs of a JobConfig run at once."""

    policy: job.ConcurrencyPolicy
    """`Allow`: any number. `Forbid`: a Job beyond `maxConcurrency` is refused. `Enqueue`: it waits.
    `Replace`: it takes the place of the oldest that runs."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """How many run at once, 1 unless given; not with `Allow`."""
    max_queued: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 20
    """How many may wait, those whose time has not come included; one more is refused."""


class OptionType(StrEnum):
    """What an option's values are."""

    BOOL = "Bool"
    STRING = "String"
    SELECT = "Select"
    MULTI = "Multi"
    DATE = "Date"
    INT = "Int"
    FLOAT = "Float"
    JSON = "JSON"


class BoolFormat(StrEnum):
    """How a Bool is written."""

    TRUE_FALSE = "TrueFalse"
    ONE_ZERO = "OneZero"
    YES_NO = "YesNo"
    CUSTOM = "Custom"


class BoolOption(Wire, frozen=True):
    """Fields of an option of type Bool."""

    default: bool = False
    """Value if none is given."""
    format: BoolFormat = BoolFormat.TRUE_FALSE
    """`TrueFalse`, `OneZero`, `YesNo`, or `Custom` with `trueVal` and `falseVal`."""
    true_val: str = ""
    """How true is written, with format `Custom`."""
    false_val: str = ""
    """How false is written, with format `Custom`."""


class StringOption(Wire, frozen=True):
    """Fields of an option of type String."""

    default: str = ""
    """Value if none is given; an empty text that is given stays empty."""
    trim_spaces: bool = False
    """Remove white space at both ends."""


class SelectOption(Wire, frozen=True):
    """Fields of an option of type Select."""

    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """What can be chosen."""
    default: str = ""
    """Value if none is given; one of `values`."""
    allow_custom: bool = False
    """Allow other values as well."""


class MultiOption(Wire, frozen=True):
    """Fields of an option of type Multi."""

    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """What can be chosen."""
    default: tuple[str, ...] = ()
    """Values if none are given, or an empty list."""
    delimiter: str = ""
    """What the values are joined by."""
    allow_custom: bool = False
    """Allow other values as well."""


class DateOption(Wire, frozen=True):
    """Fields of an option of type Date: a time in RFC 3339, whose offset is kept."""

    format: str = ""
    """How it is written, in the tokens of moment.js, such as `YYYY-MM-DD`; RFC 3339 unless
    given."""


class IntOption(Wire, frozen=True):
    """Fields of an option of type Int."""

    default: int | None = None
    """Value if none is given."""
    minimum: int | None = None
    """Least value."""
    maximum: int | None = None
    """Greatest value."""


class FloatOption(Wire, frozen=True):
    """Fields of an option of type Float."""

    default: float | None = None
    """Value if none is given."""
    minimum: float | None = None
    """Least value."""
    maximum: float | None = None
    """Greatest value."""


class JsonOption(Wire, frozen=True):
    """Fields of an option of type JSON: any JSON value, which keeps its type where it stands
    alone."""

    default: Any = None
    """Value if none is given."""


class Option(Wire, frozen=True):
    """A value that the user who runs the JobConfig may give. Its type says which of the other
    fields may be given with it."""

    type: OptionType
    """`Bool`, `String`, `Select`, `Multi`, `Date`, `Int`, `Float` or `JSON`."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9_.-]+$")]
    """Name of the option: `${option.NAME}` is its value."""
    label: str = ""
    """What it is, for people; its name unless given."""
    required: bool = False
    """A value must be given."""
    bool_: BoolOption | None = msgspec.field(default=None, name="bool")
    """Fields of type Bool."""
    string: StringOption | None = None
    """Fields of type String."""
    select: SelectOption | None = None
    """Fields of type Select; needed there."""
    multi: MultiOption | None = None
    """Fields of type Multi; needed there."""
    date: DateOption | None = None
    """Fields of type Date."""
    int_: IntOption | None = msgspec.field(default=None, name="int")
    """Fields of type Int."""
    float_: FloatOption | None = msgspec.field(default=None, name="float")
    """Fields of type Float."""
    json: JsonOption | None = None
    """Fields of type JSON."""


class Options(Wire, frozen=True):
    """The form of a JobConfig."""

    options: Annotated[tuple[Option, ...], msgspec.Meta(max_length=256)] = ()
    """Values that the user who runs it may give."""


class TemplateMetadata(Wire, frozen=True):
    """Metadata of Jobs."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of Jobs."""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Annotations of Jobs."""


class JobTemplateSpec(Wire, frozen=True):
    """What Jobs are made from."""

    spec: job.JobTemplate
    """`spec.template` of Jobs."""
    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of Jobs."""


class JobConfigSpec(Wire, frozen=True):
    """A template of Jobs, with a schedule, options and a concurrency."""

    template: JobTemplateSpec
    """What Jobs are made from."""
    concurrency: Concurrency
    """How many of its Jobs run at once."""
    schedule: Schedule | None = None
    """When Jobs are made; without it, only on request."""
    option: Options | None = None
    """Values that the user who runs it may give."""
    priority: job.Priority = 0
    """`spec.priority` of Jobs that name none."""
    locks: Annotated[tuple[job.Lock, ...], msgspec.Meta(max_length=16)] = ()
    """`spec.locks` of Jobs that name none."""
    depends_on: Annotated[tuple[job.Dependency, ...], msgspec.Meta(max_length=64)] = ()
    """`spec.dependsOn` of Jobs that name none. JobConfigs that wait for each other make no Jobs."""
    ttl_seconds_after_finished: job.WholeSeconds | None = None
    """`spec.ttlSecondsAfterFinished` of Jobs that name none."""
    ttl_seconds_after_failed: job.WholeSeconds | None = None
    """`spec.ttlSecondsAfterFailed` of Jobs that name none."""
    successful_jobs_history_limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    """How many Jobs that succeeded are kept, the newest; without it, their time to live decides."""
    failed_jobs_history_limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    """The same for Jobs that did not succeed."""


class ConfigState(StrEnum):
    """The state of a JobConfig."""

    READY = "Ready"
    """The JobConfig has no schedule."""
    READY_ENABLED = "ReadyEnabled"
    READY_DISABLED = "ReadyDisabled"
    JOB_QUEUED = "JobQueued"
    EXECUTING = "Executing"
    INVALID = "Invalid"
    """See condition `Valid`; nothing is made."""


class JobReference(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """A Job that is not over."""

    uid: str
    """Its `metadata.uid`."""
    name: str
    """Its name."""
    creation_timestamp: str | None = None
    """When it was made."""
    phase: str = ""
    """Its phase."""
    start_time: str | None = None
    """When it was started."""


class MissedTicks(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Ticks that made no Job since the JobConfig was made."""

    total: int = 0
    """All of them."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """How many for which reason, such as `Forbidden` or `TooLate`."""
    latest: str | None = None
    """The latest of them."""
    latest_reason: str = ""
    """Why that one made no Job."""


class JobConfigStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """What a JobConfig does, as last written by the server."""

    state: str = ""
    """`Ready`, `ReadyEnabled`, `ReadyDisabled`, `JobQueued`, `Executing` or `Invalid`."""
    queued: int = 0
    """How many of its Jobs wait."""
    queued_jobs: tuple[JobReference, ...] = ()
    """Those that wait, at most 20, in the order of their turns."""
    active: int = 0
    """How many of its Jobs have started and are not over."""
    active_jobs: tuple[JobReference, ...] = ()
    """Those, at most 20."""
    last_scheduled: str | None = None
    """The latest tick that was decided, whether or not it made a Job."""
    last_executed: str | None = None
    """When a Job of it was last started."""
    next_runs: tuple[str, ...] = ()
    """The next five ticks."""
    missed: MissedTicks | None = None
    """Ticks that made no Job."""
    observed_generation: int = 0
    """The `metadata.generation` that this status is about."""
    conditions: tuple[meta.Condition, ...] = ()
    """`Valid`: whether it can be used, with the path of the field that is wrong. `FieldsIgnored`:
    fields without effect."""


class JobConfig(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """What makes Jobs: a template with a schedule, options and a concurrency."""

    metadata: meta.ObjectMeta
    spec: JobConfigSpec
    status: JobConfigStatus = JobConfigStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "JobConfig"
