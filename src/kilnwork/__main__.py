"""Entry point of `python -m kilnwork`, which is the command `kiln`."""

import sys

from kilnwork.cli import main

if __name__ == "__main__":
    sys.exit(main.main())
