"""The error that ends an HTTP attempt without success: before a response, or by the verdict on it.

Used within this package. It has the reason that the task shows.
"""

from kilnwork.api import reasons
from kilnwork.kit import errors


class AttemptFailed(errors.KilnError):
    """The attempt has ended; `reason` is one of `api.reasons`. `is_loss`: not a fault of the task.

    `max_length`: maximum length of the message, which is cut after secrets are removed from it.
    """

    def __init__(
        self,
        reason: reasons.Reason,
        message: str,
        *,
        is_loss: bool = False,
        max_length: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_loss = is_loss
        self.max_length = max_length
