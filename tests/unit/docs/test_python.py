"""docs/reference/python.md lists everything that `kilnwork` exports, with defaults, and nothing
else.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork import files, testing
from kilnwork.api import task as api_task
from kilnwork.sdk import driver_session, local, options, session, set_options, set_steps, values
from kilnwork.testing import task_record
from support import pages

PAGE = (pages.DOCS / "reference" / "python.md").read_text()
SECTIONS = {title.removeprefix("kiln."): text for title, text in pages.sections(PAGE, 3).items()}
EXCEPTIONS = pages.table(pages.sections(PAGE, 2)["Exceptions"])
FLOWING = " ".join(PAGE.split())

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "start": kiln.start,
    "connect": kiln.connect,
    "Task.map": kiln.Task.map,
    "gather": kiln.gather,
    "wait": kiln.wait,
    "as_completed": kiln.as_completed,
    "future": kiln.future,
    "put": kiln.put,
    "get": kiln.get,
    "split": kiln.split,
    "files.map": files.map,
    "manifest": kiln.manifest,
    "workflow": kiln.workflow,
    "http": kiln.http,
    "function": kiln.function,
    "external": kiln.external,
    "testing.run_set": testing.run_set,
    "testing.run_flow": testing.run_flow,
}
"""Those whose options are a table below their name. `task` is one of its own."""

OF_ITEMS = {"iterable", "more", "self"}
"""Parameters of `map` that its text tells."""

CLASSES: dict[str, type] = {
    "Session": driver_session.Driver,
    "Task": kiln.Task,
    "TemplateTask": kiln.TemplateTask,
    "Future": kiln.Future,
    "Ref": kiln.Ref,
    "Part": kiln.Part,
    "files.Mapped": files.Mapped,
    "Context": kiln.Context,
    "SetRun": kiln.SetRun,
    "Shard": kiln.Shard,
    "Snapshot": kiln.Snapshot,
    "testing.InlineSession": testing.InlineSession,
    "testing.VirtualClock": testing.VirtualClock,
}


def public(error: type[BaseException]) -> list[str]:
    """Return the bases of an error as the table lists them: kilnwork's except the root, and
    Python's.
    """
    return [base.__name__ for base in error.__bases__ if base not in (kiln.KilnError, Exception)]


def test_every_public_name_is_defined() -> None:
    errors = {row.key for row in EXCEPTIONS}
    constants = set(re.findall(r"`kiln\.([A-Z_]+)`", PAGE))
    defined = {title.partition(".")[0] for title in SECTIONS} | errors | constants
    assert defined == set(kiln.__all__) - {"__version__"}
    assert "`kiln.__version__`" in PAGE


def test_every_named_attribute_exists() -> None:
    names = re.findall(r"\bkiln\.([A-Za-z_]+(?:\.[A-Za-z_]+)?)", PAGE)
    assert len(names) > 20
    for dotted in names:
        found: Any = kiln
        for step in dotted.split("."):
            found = getattr(found, step)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_of_a_function_has_its_default(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    expected = [
        (("*" if each.kind is each.VAR_POSITIONAL else "") + each.name, _default(each.default))
        for each in parameters
        if not (name == "Task.map" and each.name in OF_ITEMS) and each.kind is not each.VAR_KEYWORD
    ]
    assert [(row.key, row.cells[2]) for row in pages.table(SECTIONS[name])] == expected


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if value is Any:
        return "Any"
    if value == kiln.ALL_COMPLETED:
        return "ALL_COMPLETED"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def test_every_option_of_a_task_has_its_default() -> None:
    rows = {row.key: row.cells[2] for row in pages.table(SECTIONS["task"])}
    made = options.Options()
    named = [*options.Changes.__annotations__, "returns"]
    assert list(rows) == named
    assert rows == {name: repr(getattr(made, name, None)) for name in named}
    assert set(options.CallChanges.__annotations__) - set(named) == {"key"}
    of_templates = SECTIONS["manifest"].rpartition("Besides these")[2]
    shown = set(re.findall("`([a-z_]+)`", of_templates))
    assert shown == set(options.TemplateChanges.__annotations__)
    assert f"±{api_task.Retry().jitter:.0%}".replace("%", " %") in FLOWING


@pytest.mark.parametrize("option", ["retries", "max_losses", "returns"])
def test_ranges_are_those_that_are_checked(option: str) -> None:
    row = next(row for row in pages.table(SECTIONS["task"]) if row.key == option)
    low, high = map(int, re.findall(r"\d+", row.cells[1]))
    for value, fits in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        try:
            options.checked(option, value, of="f")
        except kiln.BadOption:
            assert not fits
        else:
            assert fits


def test_every_exception_is_in_the_table_with_its_bases() -> None:
    known = {
        name: getattr(kiln, name)
        for name in kiln.__all__
        if isinstance(getattr(kiln, name), type) and issubclass(getattr(kiln, name), Exception)
    }
    rows = {row.key: re.findall(r"\w+", row.cells[1]) for row in EXCEPTIONS}
    assert rows.pop("KilnError") == ["Exception"]
    assert rows == {name: public(known[name]) for name in known if name != "KilnError"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_exists(name: str) -> None:
    known = set(dir(CLASSES[name])) | _assigned(CLASSES[name])
    assert set(members(name)) <= known


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("Task", set()),
        ("Future", {"task", "settle", "pending", "owner", "when_done", "forget"}),
        ("Ref", set()),
        ("Part", set()),
        ("files.Mapped", set()),
        ("Context", {"stop", "task"}),
    ],
)
def test_no_member_is_left_out(name: str, hidden: set[str]) -> None:
    found = {member for member in dir(CLASSES[name]) if not member.startswith("_")}
    assert set(members(name)) == found - hidden


@pytest.mark.parametrize(
    ("kind", "hidden"),
    [
        (kiln.SyncSet, {"declared", "enter_block", "leave_block", "take_name"}),
        (kiln.SetRun, set()),
        (kiln.Shard, set()),
        (kiln.Snapshot, set()),
    ],
)
def test_members_of_a_class_are_in_its_table(kind: type, hidden: set[str]) -> None:
    """Attributes are set by the constructor, so this does not check them."""
    found = {member for member in dir(kind) if not member.startswith("_")} - hidden
    keys = [row.key for row in pages.table(SECTIONS[kind.__name__]) if len(row.cells) == 2]
    assert found <= {member for key in keys for member in re.findall(r"\w+", key)}


def test_options_of_a_set_are_in_their_table() -> None:
    rows = [row for row in pages.table(SECTIONS["SyncSet"]) if len(row.cells) == 4]
    named = {name for row in rows for name in re.findall(r"\w+", row.key)}
    assert named == {"pond", *set_options.SetOptions.__annotations__}


def test_options_of_steps_and_groups_are_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", SECTIONS["SyncSet"]))
    assert set(set_steps.StepOptions.__annotations__) <= listed
    assert set(set_options.GroupOptions.__annotations__) <= listed
    given = set(inspect.signature(kiln.SyncSet.data).parameters) - {"self", "name", "by"}
    assert given <= listed


def members(name: str) -> list[str]:
    """Return the names in the first cells of the table of a class."""
    cells = [re.sub(r"\(.*\)|`", "", row.key) for row in pages.table(SECTIONS[name])]
    return [member for cell in cells for member in cell.split(", ")]


def _assigned(kind: type) -> set[str]:
    made = (base.__dict__.get("__init__") for base in kind.__mro__)
    return {each for init in made if inspect.isfunction(init) for each in init.__code__.co_names}


def test_documented_test_attributes_exist() -> None:
    row = next(r for r in pages.table(SECTIONS["testing.InlineSession"]) if r.key == "tasks")
    for field in re.findall(r"`(\w+)`", row.cells[1]):
        assert field in task_record.Record.__init__.__code__.co_names or hasattr(
            task_record.Record, field
        )


def test_numbers_are_those_of_the_code() -> None:
    assert f"{session.UNACCEPTED_CALLS:,} calls or {session.UNACCEPTED_BYTES >> 20} MiB" in FLOWING
    assert f"up to {values.INLINE_BYTES // 1024} KiB it travels" in FLOWING
    assert f"wait up to `close_timeout` ({driver_session.CLOSE_S:g} s)" in FLOWING
    assert f"int, 1 to {local.MAX_SLOTS}" in FLOWING
    assert options.checked("key", "k" * 253, of="f")
