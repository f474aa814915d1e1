"""Tables of an API server, as tests read them."""

import re
from typing import Any

from support import kube_servers


def table(http: kube_servers.Http, path: str, **query: object) -> Any:
    return http.get(path, headers={"Accept": kube_servers.TABLE}, **query).ok()


def cells(shown: Any, name: str) -> list[Any]:
    """Return the cells of the row with that name; ages are replaced by `AGE`."""
    for row in shown["rows"]:
        if row["object"]["metadata"]["name"] == name:
            return ["AGE" if re.fullmatch(r"\d+s", str(cell)) else cell for cell in row["cells"]]
    raise AssertionError(f"no row {name}")
