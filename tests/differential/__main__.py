"""`make differential`: `python -m tests.differential [--scripts N] [--seed FIRST] [--script FILE]`.

Plays the kept scripts and N generated ones of each protocol to Apache Kafka and to Quorate. Exit code 1 when
one differs, or when accepted differences are too many; each script that differs is printed as short as it
could be made.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from benchmarks.apache import java_is_missing
from tests.differential.generating import generate_each
from tests.differential.kept import regressions, scenarios
from tests.differential.run import Servers, explain, make_arena, play_all, servers
from tests.differential.script import Script, parse
from tests.differential.write_order import compare_logs

SCRIPTS = 600
EXPLAINED_MAX = 5


async def compared(both: Servers, scripts: list[Script]) -> int:
    arena = await make_arena(both.addresses, "d")
    verdict = await play_all(arena, scripts)
    print(verdict)
    logs = compare_logs(both, verdict.same)
    print(logs)
    for failure in verdict.failures[:EXPLAINED_MAX]:
        print(f"\n{failure.script.name} differs: {failure.complaint}\n{await explain(arena, failure)}")
    complaints = [*verdict.complaints(), *logs.complaints]
    for complaint in complaints:
        print(f"FAILED {complaint}")
    return 1 if complaints else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument(
        "--scripts", type=int, default=SCRIPTS, metavar="N", help="generated scripts of each protocol"
    )
    parser.add_argument("--seed", type=int, help="seed of the first one; the others count on from it")
    parser.add_argument("--script", type=Path, help="plays this one only")
    options = parser.parse_args()
    if reason := java_is_missing():
        print(f"skipped: {reason}")
        return 0
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    print(f"seeds {first} to {first + options.scripts - 1}", flush=True)
    scripts = [*regressions(), *scenarios()]
    for seed in range(first, first + options.scripts):
        scripts += generate_each(seed)
    if options.script:
        scripts = [parse(options.script.read_text("utf-8"), options.script.name)]
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as work_dir,
        servers(Path(work_dir)) as both,
    ):
        return asyncio.run(compared(both, scripts))


if __name__ == "__main__":
    sys.exit(main())
