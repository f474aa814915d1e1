"""Store URLs: opens the store that a URL names, `file:///DIRECTORY`, or `kiln:NAMESPACE/JOB` at the
manager.

Used by `jobs`, which makes the URLs, and by slots, which get them with their parts.
"""

from pathlib import Path
from urllib import parse

from kilnwork.data import errors
from kilnwork.data.stores import local, manager_http_store, port
from kilnwork.endpoints import manager_client


def open_store(url: str) -> port.Store:
    """Return the store that a URL names, without accessing it. Raises `StoreRefused`."""
    kind, _, rest = url.partition(":")
    if kind == "file" and rest.startswith("///"):
        return local.LocalStore(Path(parse.unquote(rest[2:])))
    if kind == "kiln" and rest:
        manager = manager_client.slot_manager
        if manager is None:
            raise errors.StoreRefused(
                f"{url} is at a manager, and this process knows none: run it in a slot of a worker"
            )
        return manager_http_store.RemoteStore(url, manager.connector, spool=manager.spool)
    raise errors.StoreRefused(
        f"{url!r} names no store: write file:///DIRECTORY or kiln:NAMESPACE/DIRECTORY"
    )


def url_inside(url: str, *names: str) -> str:
    """Return the URL of a directory of a store as a store of its own: its keys are those below
    `names`.

    `url` may be `kiln:` for all stores at the manager.
    """
    for name in names:
        port.check_key(name)
    base = url if url.endswith((":", "/")) else url + "/"
    return base + "/".join(names)
