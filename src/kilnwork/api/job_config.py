"""Kind JobConfig: creates Jobs by a schedule or on request, with options and a concurrency limit.

It has the fields of Furiko's JobConfig (execution.furiko.io/v1alpha1) under the same names,
policies for daylight saving and missed runs, and history limits. `cron` parses expressions,
`due_ticks` decides which ticks are due, `job_config_options` evaluates values.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from kilnwork.api import base_struct, job, meta
from kilnwork.api import task as api_task

Wire = base_struct.Wire

MAX_NAME = 49
"""Maximum length of a JobConfig's name: the name of a scheduled Job is this name followed by the
tick."""


class CronFormat(StrEnum):
    """How days of the week are numbered."""

    STANDARD = "standard"
    """0 or 7 is Sunday."""
    QUARTZ = "quartz"
    """1 is Sunday, 7 is Saturday."""


class CronSchedule(Wire, frozen=True):
    """Times as cron expressions."""

    expression: str = ""
    """A cron expression. Exactly one of `expression` and `expressions` must be set."""
    expressions: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Several cron expressions. If several of them match the same second, one Job is created."""
    timezone: str = ""
    """Time zone: an IANA name, or an offset such as `UTC+8`. Unset: UTC."""
    format: CronFormat = CronFormat.STANDARD
    """How days of the week are numbered: `standard` (0 or 7 is Sunday) or `quartz` (1 is
    Sunday)."""


class ScheduleConstraints(Wire, frozen=True):
    """Bounds of a schedule. Both bounds are inclusive."""

    not_before: str | None = None
    """Earliest time (RFC 3339) of a tick."""
    not_after: str | None = None
    """Latest time (RFC 3339) of a tick."""


class GapPolicy(StrEnum):
    """Policy for a tick whose local time is skipped by a change of the clocks."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class OverlapPolicy(StrEnum):
    """Policy for a tick whose local time is repeated by a change of the clocks."""

    FIRST = "First"
    BOTH = "Both"


class DaylightSaving(Wire, frozen=True):
    """Policies for ticks at fixed times of the day when the clocks change. Expressions that name
    every hour follow real time instead."""

    gap: GapPolicy = GapPolicy.RUN_AFTER
    """Policy for a local time that does not exist. `RunAfter`: the tick is at the first second
    after the gap. `Skip`: there is no tick on that day, as in Furiko."""
    overlap: OverlapPolicy = OverlapPolicy.FIRST
    """Policy for a local time that occurs twice. `First`: there is one tick, at the first
    occurrence. `Both`: there are two ticks, as in Furiko."""


class MissedPolicy(StrEnum):
    """Policy for missed ticks: which of them run later."""

    NONE = "None"
    LATEST = "Latest"
    ALL = "All"


class MissedRuns(Wire, frozen=True):
    """Policy for ticks that passed while no manager ran, or while the clock was set forward."""

    policy: MissedPolicy = MissedPolicy.LATEST
    """Missed ticks that run later. `None`: none of them. `Latest`: the latest one. `All`: the
    latest `maxRuns` of them, oldest first."""
    max_runs: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """Maximum number of missed ticks that run later, with policy `All`."""
    within_seconds: Annotated[int, msgspec.Meta(ge=1, le=api_task.MAX_S)] = 86_400
    """Maximum age of a missed tick that runs later, in seconds. Older ticks are dropped."""


class Schedule(Wire, frozen=True):
    """When Jobs are created."""

    cron: CronSchedule | None = None
    """Times as cron expressions."""
    disabled: bool = False
    """Whether the schedule is disabled. Ticks that are due while it is disabled do not run
    later."""
    constraints: ScheduleConstraints | None = None
    """Bounds of the schedule."""
    last_updated: str | None = None
    """Time (RFC 3339) up to which ticks are ignored. A time in the future pauses the schedule
    until then. Past ticks do not run after an edit of the schedule, with or without this field."""
    daylight_saving: DaylightSaving = DaylightSaving()
    """Policies for ticks when the clocks change."""
    missed_runs: MissedRuns = MissedRuns()
    """Policy for ticks that passed while no manager ran."""


class Concurrency(Wire, frozen=True):
    """How many Jobs of a JobConfig run at the same time."""

    policy: job.ConcurrencyPolicy
    """Policy for a Job beyond `maxConcurrency`. `Allow`: it starts; there is no limit. `Forbid`: it
    is refused. `Enqueue`: it waits. `Replace`: it replaces the oldest running Job."""
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Maximum number of Jobs that run at the same time. Unset: 1. Not allowed with `Allow`."""
    max_queued: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 20
    """Maximum number of Jobs that wait, including Jobs whose start time has not come yet. Further
    Jobs are refused."""


class OptionType(StrEnum):
    """The type of an option's values."""

    BOOL = "Bool"
    STRING = "String"
    SELECT = "Select"
    MULTI = "Multi"
    DATE = "Date"
    INT = "Int"
    FLOAT = "Float"
    JSON = "JSON"


class BoolFormat(StrEnum):
    """How a Bool value is written."""

    TRUE_FALSE = "TrueFalse"
    ONE_ZERO = "OneZero"
    YES_NO = "YesNo"
    CUSTOM = "Custom"


class BoolOption(Wire, frozen=True):
    """Fields of an option of type Bool."""

    default: bool = False
    """Default value."""
    format: BoolFormat = BoolFormat.TRUE_FALSE
    """How the value is written: `TrueFalse`, `OneZero`, `YesNo`, or `Custom` with `trueVal` and
    `falseVal`."""
    true_val: str = ""
    """Text for true, with format `Custom`."""
    false_val: str = ""
    """Text for false, with format `Custom`."""


class StringOption(Wire, frozen=True):
    """Fields of an option of type String."""

    default: str = ""
    """Default value. An explicit empty string is not replaced by the default."""
    trim_spaces: bool = False
    """Whether white space is removed at both ends."""


class SelectOption(Wire, frozen=True):
    """Fields of an option of type Select."""

    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Values that can be chosen."""
    default: str = ""
    """Default value; one of `values`."""
    allow_custom: bool = False
    """Whether other values are allowed too."""


class MultiOption(Wire, frozen=True):
    """Fields of an option of type Multi."""

    values: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Values that can be chosen."""
    default: tuple[str, ...] = ()
    """Default values, also used for an empty list."""
    delimiter: str = ""
    """Separator with which the chosen values are joined."""
    allow_custom: bool = False
    """Whether other values are allowed too."""


class DateOption(Wire, frozen=True):
    """Fields of an option of type Date: a time in RFC 3339 whose offset is kept."""

    format: str = ""
    """Format in the tokens of moment.js, such as `YYYY-MM-DD`. Empty: RFC 3339."""


class IntOption(Wire, frozen=True):
    """Fields of an option of type Int."""

    default: int | None = None
    """Default value."""
    minimum: int | None = None
    """Minimum value."""
    maximum: int | None = None
    """Maximum value."""


class FloatOption(Wire, frozen=True):
    """Fields of an option of type Float."""

    default: float | None = None
    """Default value."""
    minimum: float | None = None
    """Minimum value."""
    maximum: float | None = None
    """Maximum value."""


class JsonOption(Wire, frozen=True):
    """Fields of an option of type JSON: any JSON value. The value keeps its type in a string that
    consists only of the variable."""

    default: Any = None
    """Default value."""


class Option(Wire, frozen=True):
    """A value that the user who runs the JobConfig may set. The type determines which of the other
    fields are allowed."""

    type: OptionType
    """Type of the option: `Bool`, `String`, `Select`, `Multi`, `Date`, `Int`, `Float` or `JSON`."""
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9_.-]+$")]
    """Name of the option. `${option.NAME}` is its value."""
    label: str = ""
    """Label of the option, for people. Empty: its name."""
    required: bool = False
    """Whether a value must be set."""
    bool_: BoolOption | None = msgspec.field(default=None, name="bool")
    """Fields of type Bool."""
    string: StringOption | None = None
    """Fields of type String."""
    select: SelectOption | None = None
    """Fields of type Select; required for that type."""
    multi: MultiOption | None = None
    """Fields of type Multi; required for that type."""
    date: DateOption | None = None
    """Fields of type Date."""
    int_: IntOption | None = msgspec.field(default=None, name="int")
    """Fields of type Int."""
    float_: FloatOption | None = msgspec.field(default=None, name="float")
    """Fields of type Float."""
    json: JsonOption | None = None
    """Fields of type JSON."""


class Options(Wire, frozen=True):
    """The options of a JobConfig."""

    options: Annotated[tuple[Option, ...], msgspec.Meta(max_length=256)] = ()
    """Options: values that the user who runs the JobConfig may set."""


class TemplateMetadata(Wire, frozen=True):
    """Metadata of the created Jobs."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the created Jobs."""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Annotations of the created Jobs."""


class JobTemplateSpec(Wire, frozen=True):
    """Template of the created Jobs."""

    spec: job.JobTemplate
    """`spec.template` of the created Jobs."""
    metadata: TemplateMetadata = TemplateMetadata()
    """Labels and annotations of the created Jobs."""


class JobConfigSpec(Wire, frozen=True):
    """A template of Jobs with a schedule, options and a concurrency limit."""

    template: JobTemplateSpec
    """Template of the created Jobs."""
    concurrency: Concurrency
    """How many Jobs of this JobConfig run at the same time."""
    schedule: Schedule | None = None
    """When Jobs are created. Unset: only on request."""
    option: Options | None = None
    """Options: values that the user who runs the JobConfig may set."""
    priority: job.Priority = 0
    """Default `spec.priority` of the created Jobs."""
    locks: Annotated[tuple[job.Lock, ...], msgspec.Meta(max_length=16)] = ()
    """Default `spec.locks` of the created Jobs."""
    depends_on: Annotated[tuple[job.Dependency, ...], msgspec.Meta(max_length=64)] = ()
    """Default `spec.dependsOn` of the created Jobs. JobConfigs that depend on each other create no
    Jobs."""
    ttl_seconds_after_finished: job.WholeSeconds | None = None
    """Default `spec.ttlSecondsAfterFinished` of the created Jobs."""
    ttl_seconds_after_failed: job.WholeSeconds | None = None
    """Default `spec.ttlSecondsAfterFailed` of the created Jobs."""
    successful_jobs_history_limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    """Maximum number of successful Jobs that are kept; the oldest are deleted first. Unset: Jobs
    are kept until their time to live has passed."""
    failed_jobs_history_limit: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    """Maximum number of unsuccessful Jobs that are kept; the oldest are deleted first. Unset: Jobs
    are kept until their time to live has passed."""


class ConfigState(StrEnum):
    """The state of a JobConfig."""

    READY = "Ready"
    """The JobConfig has no schedule."""
    READY_ENABLED = "ReadyEnabled"
    READY_DISABLED = "ReadyDisabled"
    JOB_QUEUED = "JobQueued"
    EXECUTING = "Executing"
    INVALID = "Invalid"
    """The JobConfig is invalid and creates no Jobs; see condition `Valid`."""


class JobReference(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """A Job that has not finished."""

    uid: str
    """`metadata.uid` of the Job."""
    name: str
    """Name of the Job."""
    creation_timestamp: str | None = None
    """Time at which the Job was created."""
    phase: str = ""
    """Phase of the Job."""
    start_time: str | None = None
    """Time at which the Job started."""


class MissedTicks(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """Ticks that created no Job since the JobConfig was created."""

    total: int = 0
    """Number of all such ticks."""
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of such ticks by reason, such as `Forbidden` or `TooLate`."""
    latest: str | None = None
    """Time of the latest such tick."""
    latest_reason: str = ""
    """Why the latest such tick created no Job."""


class JobConfigStatus(
    msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True
):
    """The state of a JobConfig and of its Jobs, as last written by the server."""

    state: str = ""
    """State of the JobConfig: `Ready`, `ReadyEnabled`, `ReadyDisabled`, `JobQueued`, `Executing` or
    `Invalid`."""
    queued: int = 0
    """Number of Jobs that wait."""
    queued_jobs: tuple[JobReference, ...] = ()
    """Waiting Jobs, at most 20, in the order in which they will start."""
    active: int = 0
    """Number of Jobs that have started and not finished."""
    active_jobs: tuple[JobReference, ...] = ()
    """Jobs that have started and not finished, at most 20."""
    last_scheduled: str | None = None
    """Time of the latest tick that was decided, whether or not it created a Job."""
    last_executed: str | None = None
    """Time at which a Job of the JobConfig last started."""
    next_runs: tuple[str, ...] = ()
    """Times of the next five ticks."""
    missed: MissedTicks | None = None
    """Ticks that created no Job."""
    observed_generation: int = 0
    """The `metadata.generation` that this status describes."""
    conditions: tuple[meta.Condition, ...] = ()
    """`Valid`: whether the JobConfig is valid; the message names the wrong field. `FieldsIgnored`:
    fields without effect."""


class JobConfig(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Creates Jobs: a template with a schedule, options and a concurrency limit."""

    metadata: meta.ObjectMeta
    spec: JobConfigSpec
    status: JobConfigStatus = JobConfigStatus()
    api_version: str = "kilnwork.dev/v1alpha1"
    kind: str = "JobConfig"
