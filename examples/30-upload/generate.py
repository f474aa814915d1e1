"""Prints a sample of the given number of lines, always the same."""

import json
import random
import sys


def main() -> None:
    chance = random.Random(20261121)
    for number in range(1, int(sys.argv[1]) + 1):
        record = {
            "id": str(number),
            "value1": chance.randint(1, 9999),
            "value2": chance.randint(1, 999_999),
            "op": chance.choice("+-*/"),
        }
        print(json.dumps(record))


if __name__ == "__main__":
    main()
