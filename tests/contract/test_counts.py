"""Counts of tasks by function and state equal a full count, whatever happened to the journal."""

import contextlib
import queue
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.dispatch.journal.sqlite import journal, queries, statements
from kilnwork.dispatch.machine import instructions, records, task_starts, transition_table
from kilnwork.kit import ids

S = api_task.State
CLUSTER = records.Cluster(("ns", "default"))
NUMBERS = st.integers(1, 6)
FINAL = (S.SUCCESS, S.FAILED, S.KILLED)
FULL_COUNT = """
SELECT t.namespace, t.declared,
    coalesce(json_extract(CAST(CASE WHEN t.template IS NULL THEN t.spec ELSE p.spec END AS TEXT),
        '$.call.function'), ''), t.state, count(*)
FROM task t LEFT JOIN template p ON p.template = t.template
WHERE t.run = (SELECT max(run) FROM task WHERE task = t.task) GROUP BY 1, 2, 3, 4
"""


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_spec(function: str) -> api_task.TaskSpec:
    if not function:
        return api_task.TaskSpec(command=("true",))
    return api_task.TaskSpec(call=api_task.Call(function=function))


def counted(counts: list[model.TaskCount]) -> dict[tuple[str, int, str, str], int]:
    return {(o.namespace, o.declared, o.function, o.state.value): o.number for o in counts}


def full_count(path: Path) -> dict[tuple[str, int, str, str], int]:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        found = connection.execute(FULL_COUNT)
        return {(of, declared, function, state): n for of, declared, function, state, n in found}


def write(store: port.Store, **parts: Any) -> None:
    ended: queue.SimpleQueue[port.Written] = queue.SimpleQueue()
    store.write(instructions.Batch(**parts), ended.put)
    ended.get(timeout=30)


def start(path: Path) -> journal.Journal:
    def failed(error: BaseException) -> None:
        raise error

    store = journal.Journal(path)
    store.open()
    store.start(lambda call: call(), on_failure=failed)
    return store


class Operations(RuleBasedStateMachine):
    """Random batches of all that may be written, crashes in between, and ids that are in use
    already.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        self.store = start(self.path)
        self.rows = self.next_template = 1
        self.templates: dict[tuple[str, str], records.Template] = {}
        self.unwritten = instructions.Batch()
        self.live: dict[int, records.Task] = {}

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()

    def template(self, namespace: str, function: str) -> records.Template:
        key = namespace, function
        if key not in self.templates:
            cluster = records.Cluster((namespace, "default"))
            made = records.Template(self.next_template, cluster, a_spec(function))
            self.next_template += 1
            self.templates[key] = made
            self.unwritten.templates.append(made)
        return self.templates[key]

    @rule(
        number=NUMBERS, namespace=st.sampled_from(["ns", "other"]), function=st.sampled_from("fg")
    )
    def call(self, number: int, namespace: str, function: str) -> None:
        template = self.template(namespace, function)
        self.add(
            number,
            records.Task(
                self.rows, an_id(number), self.next_run(number), namespace, "", template.cluster,
                False, template.spec, template=template, created=1.0, pending_since=1.0,
                arguments=attempts.Payload(attempts.JSON, b"[]"),
            ),
        )  # fmt: skip

    @rule(number=NUMBERS, function=st.sampled_from(["", "f"]), declared=st.booleans())
    def own_spec(self, number: int, function: str, declared: bool) -> None:  # noqa: FBT001
        submission = model.Submission(
            task=an_id(number), namespace="ns", name=f"t{number}", spec=a_spec(function),
            declared=declared,
        )  # fmt: skip
        task = task_starts.new_run(self.rows, submission, CLUSTER)
        task.run = self.next_run(number)
        self.add(number, task)

    def next_run(self, number: int) -> int:
        """Return the run number of a submission.

        A submission for an unfinished task repeats its run and is not accepted. The same holds
        while its end is unwritten: the machine goes by what the journal has of the earlier run
        (`requested_reruns._is_under_way`).
        """
        known = self.live.get(number)
        if known is None:
            return 1
        over = known.state in FINAL and known not in self.unwritten.dirty
        return known.run + 1 if over else known.run

    def add(self, number: int, task: records.Task) -> None:
        self.rows += 1
        self.unwritten.dirty[task] = None
        known = self.live.get(number)
        if known is None or known.run < task.run:
            self.live[number] = task

    @rule(
        numbers=st.sets(NUMBERS, min_size=1),
        state=st.sampled_from([S.PENDING, S.STAGING, S.RUNNING, S.KILLING, *FINAL]),
    )
    def move(self, numbers: set[int], state: api_task.State) -> None:
        for number in numbers & self.live.keys():
            task = self.live[number]
            if task.state in FINAL:
                continue
            task.state, task.attempt = state, 1
            if state is S.STAGING:
                task.attempt_state = transition_table.AttemptState.RESERVED
            elif state in FINAL:
                task.finished = task.started = 2.0
                self.unwritten.finals.append(task)
            self.unwritten.dirty[task] = None

    @rule(numbers=st.sets(NUMBERS, min_size=1))
    def forget(self, numbers: set[int]) -> None:
        for number in numbers & self.live.keys():
            task, row = self.live[number], None
            if not (task.stored and task.state in FINAL):
                continue
            if (
                task in self.unwritten.dirty
            ):  # as the machine does: an outcome that is deleted is not written
                del self.unwritten.dirty[task]
                row = task.row if task.run == 1 else None
            self.unwritten.forgotten[task.id] = row
            del self.live[number]

    @rule()
    def commit(self) -> None:
        batch, self.unwritten = self.unwritten, instructions.Batch()
        names = batch.__struct_fields__
        write(self.store, **{name: getattr(batch, name) for name in names})

    @rule()
    def crash(self) -> None:
        """Lose everything unwritten, and restore memory from the journal."""
        self.store.close()
        self.store = start(self.path)
        self.unwritten, self.live = instructions.Batch(), {}
        kept = {template for (template, *_) in self.store.reader.templates()}
        self.templates = {k: t for k, t in self.templates.items() if t.row in kept}
        with contextlib.closing(apsw.Connection(str(self.path))) as connection:
            newest: Any = connection.execute("SELECT task, max(run) FROM task GROUP BY task")
            for task, run in newest.fetchall():
                found = self.store.reader.task_row(ids.TaskId(task), run=run)
                assert found is not None
                self.live[int.from_bytes(task, "big")] = self.restored(found)

    def restored(self, row: Any) -> records.Task:
        spec = row.decoded_spec()
        template = next((t for t in self.templates.values() if t.row == row.template), None)
        task = records.Task(
            row.row, row.task, row.run, row.namespace, row.shown_name,
            records.Cluster((row.namespace, row.cluster)), bool(row.declared),
            spec if template is None else template.spec, template=template,
            state=S(row.state), stored=S(row.state),
        )  # fmt: skip
        task.created = row.created
        return task

    @invariant()
    def counts_equal_a_full_count(self) -> None:
        full = full_count(self.path)
        assert counted(self.store.reader.counts()) == full
        in_ns = {key: number for key, number in full.items() if key[0] == "ns"}
        assert counted(self.store.reader.counts("ns")) == in_ns


TestOperations = Operations.TestCase
TestOperations.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def some_tasks() -> tuple[records.Template, list[records.Task]]:
    """Return two calls, one of which has ended, and a Task object."""
    template = records.Template(1, CLUSTER, a_spec("f"))
    calls = [
        records.Task(
            number, an_id(number), 1, "ns", "", CLUSTER, False, template.spec, template=template,
            created=1.0, pending_since=1.0,
        )
        for number in (1, 2)
    ]  # fmt: skip
    calls[1].state, calls[1].finished = S.SUCCESS, 2.0
    submission = model.Submission(task=an_id(3), namespace="ns", name="t", spec=a_spec(""))
    return template, [*calls, task_starts.new_run(3, submission, CLUSTER)]


def test_memory_store_counts_tasks_by_function_and_state() -> None:
    store = memory_store.MemoryStore()
    store.open()
    template, tasks = some_tasks()
    finals = [task for task in tasks if task.state in FINAL]
    write(store, dirty=dict.fromkeys(tasks), templates=[template], finals=finals)
    assert counted(store.reader.counts()) == {
        ("ns", False, "f", "Pending"): 1,
        ("ns", False, "f", "Success"): 1,
        ("ns", True, "", "Pending"): 1,
    }
    assert store.reader.counts("other") == []


def test_migration_counts_the_tasks_of_an_older_journal(tmp_path: Path) -> None:
    """Specs of another version, or that cannot be decoded, are counted too."""
    path = tmp_path / "journal.db"
    store = start(path)
    template, tasks = some_tasks()
    write(store, dirty=dict.fromkeys(tasks), templates=[template])
    store.close()
    before = full_count(path)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("DROP TABLE task_count; DROP INDEX task_state")
        counting = next(s for s in statements.MIGRATIONS if "CREATE TABLE task_count" in s)
        connection.execute(counting)
        assert dict(counted_rows(connection)) == before
        connection.execute("DROP TABLE task_count; DROP INDEX task_state")
        connection.execute("UPDATE task SET spec = X'00' WHERE template IS NULL")
        connection.execute(counting)
        assert dict(counted_rows(connection)) == before


def counted_rows(connection: apsw.Connection) -> Any:
    found = connection.execute(
        "SELECT namespace, declared, function, state, number FROM task_count"
    )
    return (((of, declared, function, state), n) for of, declared, function, state, n in found)


@pytest.mark.parametrize("state", [S.RUNNING, S.FAILED, S.PENDING])
def test_rare_state_is_found_within_one_page_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: api_task.State
) -> None:
    """An index of states finds them; a scan would read more rows than a page may."""
    monkeypatch.setattr(queries, "PAGE_ROWS", 5)
    store = start(tmp_path / "journal.db")
    template = records.Template(1, CLUSTER, a_spec("f"))
    tasks = [
        records.Task(
            number, an_id(number), 1, "ns", "", CLUSTER, False, template.spec, template=template,
            created=1.0, pending_since=1.0, state=S.SUCCESS, finished=2.0,
        )
        for number in range(1, 100)
    ]  # fmt: skip
    for task in tasks[3:5]:
        task.state, task.finished = state, 2.0 if state in FINAL else None
    write(store, dirty=dict.fromkeys(tasks), templates=[template])
    wanted = model.TaskQuery(state=state, function="f")
    views, more = store.reader.tasks("ns", wanted=wanted)
    store.close()
    assert ([int.from_bytes(view.task, "big") for view in views], more) == ([5, 4], None)
