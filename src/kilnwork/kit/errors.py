"""The root of all errors. Each package derives its own errors from it, in its own `errors.py`.

The class docstring is the default message, so that an error raised without arguments explains
itself.
"""


class KilnError(Exception):
    """Something in kilnwork went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((self.__doc__ or "").split()))


class ConfigurationError(KilnError):
    """A setting, file or directory given by the user cannot be used; the message says what to
    do."""
