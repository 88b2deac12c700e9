"""The older protocols are in a room that nothing else loads."""

from __future__ import annotations

import subprocess
import sys


def test_a_node_and_the_command_line_load_no_older_protocol() -> None:
    program = "import sys, cluster.node, quorate.app; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "cluster.node" in loaded
    assert not {name for name in loaded if name.partition(".")[0] == "lineage"}
