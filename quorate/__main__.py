"""`python -m quorate` is the same command as `quorate`."""

import sys

from quorate.entry import main

if __name__ == "__main__":
    sys.exit(main())
