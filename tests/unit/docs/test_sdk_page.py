"""docs/reference/python-api.md is what the docstrings of the public names say."""

import inspect

import kilnwork as kiln
from kilnwork import executor, files, testing
from kilnwork.cli import python_reference
from support import pages

PAGE = (pages.DOCS / "reference" / "python-api.md").read_text()


def test_page_is_current() -> None:
    assert python_reference.page() == PAGE, "run `make docs`"


def test_every_public_name_has_a_section_with_its_docstring() -> None:
    for module, prefix in ((kiln, "kiln"), (files, "files"), (executor, "executor")):
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("__") or inspect.ismodule(value):
                continue
            assert f"### `{prefix}.{name}`\n" in PAGE
            if callable(value) and value.__doc__:
                assert inspect.cleandoc(value.__doc__) in PAGE


def test_internal_methods_exist_and_are_left_out() -> None:
    public = {name: getattr(kiln, name) for name in kiln.__all__} | vars(testing)
    for name, members in python_reference._INTERNAL.items():
        for member in members:
            assert hasattr(public[name], member), f"{name}.{member} does not exist any more"
            assert f"#### `{name}.{member}`" not in PAGE
