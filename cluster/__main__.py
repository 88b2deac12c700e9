"""`python -P -m cluster`: one node in this process."""

import gc
import sys

gc.disable()  # a tenth of the time of the imports, which make no garbage; a node turns it on when it serves
from cluster.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
