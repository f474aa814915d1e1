"""What a server waits for before it is ready, as /readyz says it.

Used by `kiln status` and `kiln why`.
"""

from kilnwork.cli import session
from kilnwork.kube import errors as kube_errors


async def waits_for(s: session.Session) -> str:
    """Empty when the server is ready, else what it waits for."""
    try:
        await s.exchange("GET", "/readyz")
    except kube_errors.Unavailable as error:
        if not error.status:
            raise
        return open_checks(str(error))
    return ""


def open_checks(readyz: str) -> str:
    """What the server waits for, of what /readyz says."""
    lines = readyz.splitlines()
    return "; ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
