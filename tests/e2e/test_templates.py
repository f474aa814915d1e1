"""`kiln.manifest` and `kiln.workflow` under `kiln up`: objects in graphs of Python functions."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support
from support import waiting

BOOKS = Path(__file__).parent.parent.parent / "examples" / "16-custom-resource"
PATIENCE_S = 60

BOOK: dict[str, Any] = {
    "apiVersion": "my.custom.domain/v1alpha1",
    "kind": "Book",
    "metadata": {"annotations": {"about": "${task.inputs.about}"}},
    "spec": {"chapters": "${task.inputs.chapters}"},
}
RULES: dict[str, Any] = {
    "success_condition": '.status.phase == "Succeeded"',
    "json_path": ".status.pages",
}
print_book: kiln.TemplateTask[int] = kiln.manifest(BOOK, **RULES, result=int, timeout=PATIENCE_S)


@contextlib.contextmanager
def printing(server: up_support.UpServer) -> Iterator[None]:
    """Run the controller of Books, which ends with the server."""
    environment = {**os.environ, **server.environment}
    printer = subprocess.Popen([sys.executable, BOOKS / "printer.py"], env=environment)
    try:
        yield
    finally:
        printer.kill()
        printer.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("templates"), slots=2) as made:
        made.kiln("apply", "-f", str(BOOKS / "crd.yaml"))
        with printing(made):
            yield made


@pytest.fixture
def session(server: up_support.UpServer) -> Iterator[kiln.Session]:
    with kiln.connect(server.data / "kubeconfig") as made:
        yield made


@kiln.task
def add(first: int, second: int) -> int:
    return first + second


@kiln.task
def titles() -> tuple[str, ...]:
    """Return a tuple, which is stored as a pickle because JSON has none."""
    return ("a", "b")


@kiln.task
def twice() -> int:
    """Create objects from a task, as its driver does."""
    pages = print_book.submit(chapters=1, about="a child")
    more = print_book.submit(chapters=add.submit(pages, 1), about="a child of a child")
    return pages.result() + more.result()


def test_arguments_and_results_pass_between_functions_and_objects(session: kiln.Session) -> None:
    pages = print_book.submit(chapters=add.submit(1, 1), about={"titles": titles.submit()})
    assert add.submit(pages, 10).result(PATIENCE_S) == 12
    assert pages.result() == 2


def test_task_makes_objects_too(session: kiln.Session) -> None:
    assert twice.submit().result(PATIENCE_S) == 3


def test_key_identifies_one_object(session: kiln.Session) -> None:
    keyed = print_book.options(key="one-book", name="the-book")
    first = keyed.submit(chapters=1, about="k")
    assert keyed.submit(chapters=1, about="k").id == first.id
    with pytest.raises(kiln.KeyTaken):
        keyed.submit(chapters=2, about="k").result(PATIENCE_S)
    other = kiln.manifest({**BOOK, "spec": {"chapters": 1}}, **RULES, key="one-book")
    with pytest.raises(kiln.KeyTaken):
        other.submit(about="k").result(PATIENCE_S)
    assert first.result(PATIENCE_S) == 1


def test_map_makes_an_object_of_each_item(session: kiln.Session) -> None:
    items = [{"chapters": add.submit(n, 1), "about": "map"} for n in range(2)]
    items.append({"chapters": 4, "about": "map"})
    books = print_book.map(items, max_in_flight=2, key=lambda one: f"map {items.index(one)}")
    assert [book.result(PATIENCE_S) for book in books] == [1, 2, 4]
    assert print_book.options(key="map 2").submit(**items[2]).id == books[2].id


def test_failure_has_its_reason(session: kiln.Session) -> None:
    with pytest.raises(TypeError, match="is no <class 'str'>"):
        kiln.manifest(BOOK, **RULES, result=str).submit(chapters=1, about="").result(PATIENCE_S)
    with pytest.raises(kiln.TaskFailed, match=r"spec\.chapters"):
        print_book.submit(chapters="many", about="").result(PATIENCE_S)
    with pytest.raises(kiln.InputFailed):
        print_book.submit(chapters=add.submit(1, "x"), about="").result(PATIENCE_S)


def test_arguments_keep_their_types_and_cancelling_deletes_the_object(
    session: kiln.Session, server: up_support.UpServer
) -> None:
    def books() -> list[Any]:
        found = json.loads(server.kiln("get", "books", "-o", "json").stdout)["items"]
        about = '["x","2026-01-02"]'
        return [one for one in found if one["metadata"]["annotations"]["about"] == about]

    future = print_book.submit(chapters=10**6, about=("x", date(2026, 1, 2)))
    [book] = waiting.wait_until(books, what="the Book is there")
    assert book["spec"] == {"chapters": 10**6}
    assert future.cancel()
    with pytest.raises(kiln.Cancelled):
        future.result(PATIENCE_S)
    waiting.wait_until(lambda: not books(), what="the Book is gone")
    server.kiln("retry", future.id)
    [again] = waiting.wait_until(books, what="a Book of the second run is there")
    assert (again["spec"], again["metadata"]["name"][-4:]) == (book["spec"], "-2-1")
    assert kiln.future(future.id).cancel()
    waiting.wait_until(lambda: not books(), what="that Book is gone")


def test_object_outlives_the_manager(session: kiln.Session, server: up_support.UpServer) -> None:
    future = print_book.submit(chapters=add.submit(14, 1), about="restart")
    waiting.wait_until(
        lambda: "restart" in server.kiln("get", "books", "-o", "json").stdout,
        what="the Book is there",
    )
    server.kill()
    server.start()
    with printing(server):
        assert future.result(PATIENCE_S) == 15


OTHERS: dict[str, kiln.TemplateTask[Any]] = {
    "manifest": kiln.manifest({**BOOK, "metadata": {}, "spec": {}}, **RULES),
    "workflow": kiln.workflow({"spec": {"entrypoint": "main"}}),
    "http": kiln.http({"request": {"method": "GET", "url": "http://service/"}}),
    "function": kiln.function({"service": "hello", "request": {"method": "GET", "url": "/"}}),
    "external": kiln.external("mine", {}),
}


def test_home_refuses_every_other_executor() -> None:
    with kiln.start(slots=1):
        for name, template in OTHERS.items():
            with pytest.raises(kiln.BadOption) as raised:
                template.submit()
            assert str(raised.value).startswith(f"kiln.{name}: kiln.start()")
            assert "use kiln.connect()" in str(raised.value)
