"""Query options of requests, parsed and validated: options of lists, watches and writes.

Used by `app`, `resource_handler`, `lists` and `watches`. Follows apimachinery's
internalversion/validation and metav1/validation: 400 for an unreadable value, 422 for values that
contradict each other.
"""

from collections.abc import Sequence
from typing import Self

import msgspec

from kilnwork.controlplane.apiserver import requests, statuses

EXACT, NOT_OLDER = "Exact", "NotOlderThan"
_MANAGER_BYTES = 128
_KINDS = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
    "deletecollection": "DeleteOptions",
}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a list or watch."""

    limit: int
    """Maximum number of objects in a page; 0 means no limit."""
    continue_: str
    version: str
    """Query parameter `resourceVersion`; empty if not given."""
    match: str
    """Query parameter `resourceVersionMatch`; empty if not given."""
    bookmarks: bool
    initial_events: bool | None
    """Query parameter `sendInitialEvents`; None if not given."""
    timeout_s: int | None
    """Query parameter `timeoutSeconds`; None means the server's default."""

    @classmethod
    def parse(cls, query: requests.Query, *, watch: bool) -> Self:
        """Return the options in the query of a list or watch. Raises 400 or 422 for invalid
        options.
        """
        initial = query.flag("sendInitialEvents")
        found = cls(
            limit=max(0, query.number("limit") or 0),
            continue_=query.text("continue"),
            version=query.text("resourceVersion"),
            match=query.text("resourceVersionMatch"),
            bookmarks=query.flag("allowWatchBookmarks"),
            # An absent flag differs from false here (KEP-3157).
            initial_events=initial if "sendInitialEvents" in query.values else None,
            timeout_s=query.number("timeoutSeconds"),
        )
        wrong = found._wrong_for_watch() if watch else found._wrong_for_list()
        if wrong:
            raise statuses.invalid_options("ListOptions", wrong)
        return found

    def _wrong_for_list(self) -> list[statuses.Cause]:
        wrong = []
        if self.match and not self.version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            wrong.append(_forbidden("resourceVersionMatch", why))
        if self.match and self.continue_:
            wrong.append(_with_continue())
        if self.match not in ("", EXACT, NOT_OLDER):
            wrong.append(
                _unsupported("resourceVersionMatch", f'"{self.match}"', (EXACT, NOT_OLDER, ""))
            )
        if self.match == EXACT and self.version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            wrong.append(_forbidden("resourceVersionMatch", why))
        if self.initial_events is not None:
            why = "sendInitialEvents is forbidden for list"
            wrong.append(_forbidden("sendInitialEvents", why))
        return wrong

    def _wrong_for_watch(self) -> list[statuses.Cause]:
        wrong = []
        if self.initial_events is not None and self.match != NOT_OLDER:
            why = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
            wrong.append(_forbidden("resourceVersionMatch", why))
        if not self.match:
            return wrong
        if self.initial_events is None:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            wrong.append(_forbidden("resourceVersionMatch", why))
        if self.match != NOT_OLDER:
            wrong.append(_unsupported("resourceVersionMatch", f'"{self.match}"', (NOT_OLDER,)))
        if self.continue_:
            wrong.append(_with_continue())
        return wrong


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a write. `field_validation`: Strict, Warn or Ignore. `manager` may be empty."""

    dry_run: bool
    field_validation: str
    manager: str
    force: bool = False

    @classmethod
    def parse(cls, query: requests.Query, *, verb: str, apply: bool = False) -> Self:
        """Return the options in the query of a write. Raises 422 for invalid options.

        `apply`: the request is an apply patch.
        """
        dry_run = query.text("dryRun")
        validation = query.text("fieldValidation")
        manager = query.text("fieldManager")
        wrong = []
        if apply and not manager:
            why = "Required value: is required for apply patch"
            wrong.append(statuses.Cause("fieldManager", "FieldValueRequired", why))
        if verb == "patch" and not apply and "force" in query.values:
            wrong.append(_forbidden("force", "may not be specified for non-apply patch"))
        if len(manager.encode()) > _MANAGER_BYTES:
            why = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
            wrong.append(statuses.Cause("fieldManager", "FieldValueTooLong", why))
        if dry_run not in ("", "All"):
            wrong.append(_unsupported("dryRun", f'[]string{{"{dry_run}"}}', ("All",)))
        if validation not in _VALIDATIONS:
            wrong.append(_unsupported("fieldValidation", f'"{validation}"', _VALIDATIONS))
        if wrong:
            raise statuses.invalid_options(_KINDS.get(verb, "CreateOptions"), wrong)
        return cls(
            dry_run=bool(dry_run),
            # The default of the real server (KEP-2885).
            field_validation=validation or "Warn",
            manager=manager,
            force=query.flag("force"),
        )


def _forbidden(field: str, why: str) -> statuses.Cause:
    return statuses.Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _with_continue() -> statuses.Cause:
    why = "resourceVersionMatch is forbidden when continue is provided"
    return _forbidden("resourceVersionMatch", why)


def _unsupported(field: str, shown: str, known: Sequence[str]) -> statuses.Cause:
    listed = ", ".join(f'"{one}"' for one in known)
    message = f"Unsupported value: {shown}: supported values: {listed}"
    return statuses.Cause(field, "FieldValueNotSupported", message)
