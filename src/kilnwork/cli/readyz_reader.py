"""Reasons why a server is not ready yet, from /readyz.

Used by `kiln status` and `kiln why`.
"""

from kilnwork.cli import session
from kilnwork.kube import errors as kube_errors


async def read_open_checks(s: session.Session) -> str:
    """Ask the server for its failing readiness checks and return them as text, or "" if it is
    ready.
    """
    try:
        await s.exchange("GET", "/readyz")
    except kube_errors.Unavailable as error:
        if not error.status:
            raise
        return parse_open_checks(str(error))
    return ""


def parse_open_checks(readyz: str) -> str:
    """Return the failing checks in the text of /readyz, or "" if there are none."""
    lines = readyz.splitlines()
    return "; ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
