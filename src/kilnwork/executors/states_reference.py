"""Generator of the tables of states of all executors in the reference pages: `make docs`.

A test checks that the pages are current. Not used by the manager.
"""

import sys
from pathlib import Path

from kilnwork.executors import external_states_reference, state_table_types
from kilnwork.executors.custom_resource import states_reference as object_states
from kilnwork.executors.ephemeral import states_reference as ephemeral_states
from kilnwork.executors.http import states_reference as http_states
from kilnwork.executors.pod import states_reference as pod_states

PAGES: dict[str, tuple[state_table_types.Table, ...]] = {
    "executors.md": (
        pod_states.TABLE,
        object_states.OBJECTS,
        object_states.WORKFLOWS,
        ephemeral_states.TABLE,
        external_states_reference.TABLE,
    ),
    "http.md": (http_states.TABLE,),
}
"""Pages of docs/reference, and the tables on each."""

if __name__ == "__main__":
    for name, tables in PAGES.items():
        path = Path(sys.argv[1]) / name
        path.write_text(state_table_types.written(path.read_text(), tables))
