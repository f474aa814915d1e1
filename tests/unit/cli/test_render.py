"""Text for people and machines."""

from kilnwork.api import api_resources, kinds, task
from kilnwork.cli import render


def test_columns_are_aligned_without_trailing_space() -> None:
    lines = render.columns(["NAME", "STATE", "X"], [["a", "Running", ""], ["long-name", None, 3]])
    assert lines == [
        "NAME        STATE     X",
        "a           Running",
        "long-name   <none>    3",
    ]


def test_columns_are_cut_in_order_until_they_fit() -> None:
    header, row = ["NAME", "STATE", "X"], ["n" * 30, "s" * 20, "x"]
    fitting = render.fitted(header, [row], width=57, flexible=("NAME", "STATE"))
    assert fitting == render.columns(header, [row])
    cut = render.fitted(header, [row], width=47, flexible=("NAME", "STATE"))
    assert cut[1] == f"{'n' * 10}…{'n' * 9}   {'s' * 20}   x"
    both = render.fitted(header, [row], width=1, flexible=("NAME", "STATE"))
    assert both[1] == "nnnnnn…nnnnn   ssssss…sssss   x"


def test_times_are_shortened() -> None:
    assert [render.took(s) for s in (0, 0.0521, 0.9996, 3.44, 9.96, 119, 120, 8000)] == [
        "0ms", "52ms", "1.0s", "3.4s", "10s", "119s", "2m", "2h",
    ]  # fmt: skip
    assert [render.short_time(s) for s in (-1, 5, 130, 200_000)] == ["0s", "5s", "2m", "2d"]


def test_yaml_is_sorted_and_keeps_text_as_text() -> None:
    text = render.yaml_text({"b": {"x": "1\n2\n"}, "a": ["true", "0644", 1, None]})
    assert text == "a:\n- 'true'\n- '0644'\n- 1\n- null\nb:\n  x: |\n    1\n    2\n"


def test_yaml_writes_enum_states_as_text() -> None:
    text = render.yaml_text({task.State.FAILED: 1, "state": task.State.SUCCESS})
    assert text == "Failed: 1\nstate: Success\n"


def test_json_is_sorted_and_indented() -> None:
    assert render.json_text({"b": 1, "a": [1]}).startswith('{\n    "a": [')


def test_full_name_has_kind_group_and_name() -> None:
    assert render.full_name(kinds.TASKS, "x") == "task.kilnwork.dev/x"
    assert render.full_name(api_resources.PODS, "x") == "pod/x"
