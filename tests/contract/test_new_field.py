"""A new field of a task is added in three places; it is then submitted, stored, restored and
viewed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kilnwork

SOURCE = Path(kilnwork.__file__).parent

PLACES = {
    "dispatch/model.py": (
        "class SubmittedFacts(msgspec.Struct, kw_only=True):\n",
        '    colour: str = ""\n',
    ),
    "dispatch/journal/task_rows.py": (
        "    child_key: str | None\n",
        "    colour: Annotated[str, _C(changes=True)]\n",
    ),
}
"""File, a line of it, and the line that is added before or after that one."""

MIGRATION = "ALTER TABLE task ADD COLUMN colour TEXT NOT NULL DEFAULT '';\n"

PROGRAM = """
import random, sys, threading
from pathlib import Path
import kilnwork
from kilnwork.api import attempts, task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import memory_store, restore
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import inputs, instructions, memory, records
from kilnwork.dispatch.machine import task_starts, transition_table
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
TEMPLATE = records.Template(1, CLUSTER, api_task.TaskSpec(call=api_task.Call(function="f")))
WORKER = records.Worker(CLUSTER, b"s" * 16, row=1, name="w", pod_uid="u", node="n")
S, A = api_task.State, transition_table.AttemptState

def an_id(number):
    return ids.TaskId(number.to_bytes(16, "big"))

def a_call(number, **facts):
    return records.Task(
        number, an_id(number), 1, "ns", "", CLUSTER, False, TEMPLATE.spec, template=TEMPLATE,
        arguments=attempts.Payload(attempts.JSON, b"[]"), created=1.0, pending_since=1.0, **facts)

def a_command(number, **facts):
    spec, name = api_task.TaskSpec(command=("true",)), f"t{number}"
    given = model.Submission(task=an_id(number), namespace="ns", name=name, spec=spec, **facts)
    task = task_starts.new_run(number, given, CLUSTER)
    task.created = task.pending_since = 1.0
    return task

def write(store, *tasks, **parts):
    done = threading.Event()
    finals = [task for task in tasks if task.state.final]
    batch = instructions.Batch(dirty=dict.fromkeys(tasks), finals=finals, **parts)
    store.write(batch, lambda _: done.set())
    assert done.wait(30)

def colours(store, *tasks):
    rows = [store.reader.task_row(task.id) for task in tasks]
    views = [store.reader.view(row) for row in rows]
    assert [row.colour for row in rows] == [view.colour for view in views]
    return [view.colour for view in views]

def reserve(task):
    task.state, task.attempt_state, task.attempt = S.STAGING, A.RESERVED, 1
    task.worker, task.reserved, task.reason = WORKER, 2.0, "Starting"

def check(store, path):
    first = store.open()
    def failed(error):
        raise error
    store.start(lambda call: call(), on_failure=failed)
    call, later, command = a_call(1, colour="red"), a_call(2), a_command(3, colour="green")
    write(store, call, later, command, templates=[TEMPLATE], workers=[WORKER])
    assert colours(store, call, later, command) == ["red", "", "green"]
    for task in (call, later):
        reserve(task)
    later.colour, command.colour = "blue", "black"
    write(store, call, later, command)
    assert colours(store, call, later, command) == ["red", "blue", "black"]
    ended = a_call(4)
    write(store, ended)
    ended.attempt, ended.attempt_state, ended.state = 1, A.SUCCEEDED, S.SUCCESS
    ended.finished, ended.stopped, ended.colour = 3.0, True, "white"
    write(store, ended)
    assert colours(store, ended) == ["white"]
    store.close()
    if path is None:
        return
    again = journal.Journal(path)
    opened = again.open()
    mem = memory.Memory(lease_s=10.0, entropy=random.Random(0))
    restore.restore(mem, opened.saved, again.reader.values, inputs.Moment(5.0, 5.0))
    found = [mem.tasks[an_id(number)].colour for number in (1, 2, 3)]
    assert found == ["red", "blue", "black"], found
    again.close()

home = Path(sys.argv[1])
assert Path(kilnwork.__file__).is_relative_to(home), kilnwork.__file__
check(memory_store.MemoryStore(), None)
check(journal.Journal(home / "data" / "journal.db"), home / "data" / "journal.db")
print("submitted, stored, restored, viewed")
"""


def test_new_field_of_a_task_is_added_in_three_places(tmp_path: Path) -> None:
    copy = tmp_path / "kilnwork"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (line, added) in PLACES.items():
        file = copy / name
        text = file.read_text()
        assert text.count(line) == 1, name
        after_class = line.startswith("class ")
        if after_class:  # behind the docstring and the first blank line
            at = text.index('    """\n\n', text.index(line)) + len('    """\n\n')
        else:
            at = text.index(line)
        file.write_text(text[:at] + added + text[at:])
    directory = copy / "dispatch" / "journal" / "sqlite" / "sql"
    number = max(int(path.name[:3]) for path in directory.glob("[0-9]*.sql")) + 1
    (directory / f"{number:03}_colour.sql").write_text(MIGRATION)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "submitted, stored, restored, viewed\n"), (
        done.stderr
    )
