"""Run one node in this process: `python -P -m cluster`."""

import gc
import sys

gc.disable()  # saves a tenth of the import time; imports make no garbage. The node enables it again
from cluster.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
