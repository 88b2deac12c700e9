"""`python -m benchmarks [name …]`: run the named benchmarks, or all of them, each in a process of its own.

Separate processes keep a benchmark that measures memory or start-up from inheriting another's heap, and one
failure from hiding the others' figures. Figures are ratios or rates measured in one run; docs/performance.md
holds recorded ones, with their command.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUFFIX = "_bench.py"


def known() -> list[str]:
    """Names of the benchmarks: `records` for benchmarks/records_bench.py."""
    return sorted(path.name.removesuffix(SUFFIX) for path in HERE.glob(f"*{SUFFIX}"))


def main() -> int:
    """Run the named benchmarks, or all without a name; returns the worst exit code of the runs."""
    available = known()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(available)}")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in available]:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(available)}")
    worst = 0
    for name in names or available:
        print(f"== {name}", flush=True)
        run = subprocess.run([sys.executable, "-m", f"benchmarks.{name}_bench"], cwd=HERE.parent, check=False)
        worst = max(worst, abs(run.returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main())
