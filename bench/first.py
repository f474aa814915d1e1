"""The smallest whole program: start-up time until the first result.

Run by `tasks.py` in a fresh interpreter. With an argument it uses both slots and keeps running, so
that its memory can be read, until its standard input ends.
"""

import sys
import time

import kilnwork as kiln


@kiln.task
def one() -> int:
    return 1


@kiln.task
def pause() -> None:
    time.sleep(0.3)


def main() -> None:
    with kiln.start(slots=2):
        one.submit().result()
        print("first", flush=True)
        if len(sys.argv) > 1:
            kiln.gather(pause.submit(), pause.submit()).result()
            print("idle", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
