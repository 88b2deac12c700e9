"""`python -m benchmarks [name …]`: run the named benchmarks, or all of them, each in a process of its own.

Separate processes keep a benchmark that measures memory or start-up from inheriting another's heap, and one
failure from hiding the others' figures. Figures are ratios or rates measured in one run; docs/performance.md
holds recorded ones, with their command.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUFFIX = "_bench.py"


def known() -> list[str]:
    """Names of the benchmarks: `records` for benchmarks/records_bench.py."""
    return sorted(path.name.removesuffix(SUFFIX) for path in HERE.glob(f"*{SUFFIX}"))


def main(names: list[str]) -> int:
    """Run `names`, or all if empty. Returns 0, 2 for an unknown name, or the worst exit code of the runs."""
    available = known()
    if unknown := [name for name in names if name not in available]:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(available)}", file=sys.stderr)
        return 2
    worst = 0
    for name in names or available:
        print(f"== {name}", flush=True)
        run = subprocess.run([sys.executable, "-m", f"benchmarks.{name}_bench"], cwd=HERE.parent, check=False)
        worst = max(worst, abs(run.returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
