"""What can go wrong with jobs: one class per reaction."""

from kilnwork.kit import errors


class JobsError(errors.KilnError):
    """Something about a job could not be done."""


class NoSuchJob(JobsError):
    """There is no such job in this namespace: it never was, or its time to live is over."""


class SeveralJobs(JobsError):
    """A short id could mean several jobs, which the message names."""


class NotNow(JobsError):
    """The job is in a phase in which this cannot be done; the message says what can."""


class InvalidJob(JobsError):
    """The job cannot be as it is described; the message begins with the path of the field."""


class ItemUnusable(JobsError):
    """An item cannot get a task: it has failed, with this message."""


class KeyUsed(JobsError):
    """This idempotency key was used for another job, whose id is `job`."""

    def __init__(self, job: str, fingerprint: bytes) -> None:
        super().__init__(f"this idempotency key made job {job} already")
        self.job = job
        self.fingerprint = fingerprint


class TickDecided(JobsError):
    """This tick of the schedule, or a later one, was decided before: by a successor, perhaps."""


class JobsStopped(JobsError):
    """The service is stopping, or cannot write; ask the next one."""


class OldDatabaseUnreadable(JobsError):
    """The database of jobs of an earlier kilnwork is damaged; the message says what to do."""
