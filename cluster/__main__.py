"""`python -P -m cluster`: one node in this process."""

import sys

from cluster.main import main

sys.exit(main(sys.argv[1:]))
