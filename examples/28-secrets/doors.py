"""Functions with a variable from a Secret; the results of one are used again.

python3 doors.py
"""

import os

import kilnwork as kiln


@kiln.task(env={"PASSWORD": kiln.SecretKey("vault", "password"), "MODE": "quiet"}, cache="1h")
def knock(door: str) -> str:
    opened = os.environ["PASSWORD"] == "open-sesame"
    return f"{door} is {'open' if opened else 'shut'}"


if __name__ == "__main__":
    with kiln.connect():
        for _ in range(2):
            futures = knock.map(["front", "back"])
            print(*(future.result() for future in futures), sep=", ")
        print(*(future.id for future in futures), sep="\n")
