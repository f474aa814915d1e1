"""Writes the worker image unless its sources are unchanged, and prints its file: `python -m
hack.image`.

`ctr --namespace k8s.io images import FILE` loads it into a node's containerd.
"""

import argparse
import shutil
import sys
from pathlib import Path

from hack.image import worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.image", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="copy it there")
    given = parser.parse_args()
    try:
        made = worker.build()
    except worker.NotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    if given.out is not None:
        shutil.copyfile(made, given.out)
    print(given.out or made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
