"""A call whose result outlives the program: prints its id.

python3 squares.py DIRECTORY
"""

import sys

import kilnwork as kiln


@kiln.task
def squares(count: int) -> list[int]:
    return [number * number for number in range(count)]


if __name__ == "__main__":
    with kiln.start(sys.argv[1], slots=1):
        future = squares.submit(5)
        future.result()
        print(future.id)
