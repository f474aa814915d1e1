"""Errors of jobs: one class for each way in which callers react."""

from kilnwork.kit import errors


class JobsError(errors.KilnError):
    """An operation on a job failed."""


class NoSuchJob(JobsError):
    """There is no such job in this namespace: it never existed, was deleted, or its time to live
    has passed."""


class SeveralJobs(JobsError):
    """A short id matches several jobs, which the message lists."""


class NotNow(JobsError):
    """The phase of the job does not allow this operation; the message says what is allowed."""


class InvalidJob(JobsError):
    """The specification of a job is invalid; the message begins with the path of the field."""


class ItemUnusable(JobsError):
    """No task can be made for an item, which therefore fails with this message."""


class KeyUsed(JobsError):
    """This idempotency key was used for a different request, which has created the job with the id
    `job`.
    """

    def __init__(self, job: str, fingerprint: bytes) -> None:
        super().__init__(f"this idempotency key made job {job} already")
        self.job = job
        self.fingerprint = fingerprint


class TickDecided(JobsError):
    """This tick of the schedule, or a later one, was decided before, perhaps by another manager."""


class JobsStopped(JobsError):
    """The service is stopping or cannot write to the journal. Send the request again later, or to
    the process that takes over."""


class OldDatabaseUnreadable(JobsError):
    """The job database of an earlier version of kilnwork is damaged; the message says what to
    do."""
