"""Tasks for the counter from Python: a call of a task function without a function."""

import kilnwork as kiln

count = kiln.external("counter", {"text": "${task.inputs.text}"}, result=dict[str, int])


def main() -> None:
    with kiln.connect():
        first, second = kiln.gather(*count.map(["to be or", "not to be"])).result()
    print(first["be"] + second["be"])


if __name__ == "__main__":
    main()
