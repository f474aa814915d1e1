"""Python functions, an object of another kind and a Workflow in one graph; see run.sh."""

import kilnwork as kiln

BOOK = """
apiVersion: my.custom.domain/v1alpha1
kind: Book
metadata:
  name: google-sre-book
  finalizers: [my.custom.domain/printer]
spec:
  chapters: ${task.inputs.chapters}
"""
WORKFLOW = {
    "spec": {
        "entrypoint": "main",
        "templates": [
            {
                "name": "main",
                "container": {
                    "image": "busybox",
                    "command": ["sh", "-c", "echo ${task.inputs.text} > /tmp/news-${task.id}"],
                },
                "outputs": {
                    "parameters": [
                        {
                            "name": "news",
                            "globalName": "news",
                            "valueFrom": {"path": "/tmp/news-${task.id}"},
                        }
                    ]
                },
            }
        ],
    }
}


@kiln.task
def outline(titles: list[str]) -> int:
    return len(titles)


print_book = kiln.manifest(
    BOOK,
    success_condition='.status.phase == "Succeeded"',
    failure_condition='.status.phase == "Failed"',
    json_path=".status.pages",
    result=int,
    timeout=60,
)


@kiln.task
def headline(pages: int) -> str:
    return f"a book of {pages} pages"


announce = kiln.workflow(WORKFLOW, timeout=60)


@kiln.task
def summary(pages: int, announced: dict[str, str]) -> str:
    return f"{pages} pages, announced as: {announced['news']}"


def main() -> None:
    with kiln.connect():
        chapters = outline.submit(["Introduction", "Principles", "Practices"])
        pages = print_book.submit(chapters=chapters)
        announced = announce.submit(text=headline.submit(pages))
        result = summary.submit(pages, announced).result(timeout=90)
    print(result)
    assert result == "3 pages, announced as: a book of 3 pages"


if __name__ == "__main__":
    main()
