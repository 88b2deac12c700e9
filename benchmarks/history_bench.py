"""Cost of queries on a long log: CPU time per record, and memory, which must not grow with the log.

    python -m benchmarks history
    python -m benchmarks.history_bench --records 1000000 5000000 --keep DIR

The logs are those of `benchmarks.mixedlog`: 2,000 groups of one shard. A query concerns one group or all.
Each query runs in a process of its own, on a log and on a longer one with the same number of groups, members
and offsets; peak memory must be about the same. The rate counts all records of the log, including skipped
ones. Queries for a point in time run with and without the kept snapshots.

Targets: 1,000,000 records per CPU second skipped for one group, 100,000 for the facts of all groups; memory
for the longer log at most 1.25 times that for the shorter one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.figures import peak_mib
from benchmarks.mixedlog import Written, group_name, write_log
from history.answers.findings import findings
from history.answers.owner import owner, parse_partition
from history.answers.statediff import diff
from history.facts.shard import rows_of
from history.reading.node import NodeLog
from history.reading.opening import open_node
from history.reading.source import Walk
from history.state.replay import replay
from history.telling.dump import Filter, dump, dump_text
from history.telling.explain import explain
from history.telling.prose import explanation_text

ONE_GROUP_PER_S = 1_000_000
ALL_GROUPS_PER_S = 100_000
MEMORY_RATIO = 1.25
NEAR_THE_END = 1_000
"""The queried point in time, in entries before the end."""
GROUP = group_name(0)
PARTITION = parse_partition("orders-3")


def exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


QUESTIONS: dict[str, tuple[Callable[[NodeLog, int], object], int | None]] = {
    "explain, one group": (lambda log, _: exhaust(explanation_text(explain(log, GROUP))), ONE_GROUP_PER_S),
    "findings, one group": (lambda log, _: findings(log, GROUP), ONE_GROUP_PER_S),
    "owner, one group": (lambda log, _: owner(log, PARTITION, group=GROUP), ONE_GROUP_PER_S),
    "dump --group": (lambda log, _: exhaust(dump_text(dump(log, Filter(groups=frozenset([GROUP]))))), None),
    "facts, all groups": (
        lambda log, _: exhaust(rows_of(0, log.catalog(), Walk(0, log.reader(0)))),
        ALL_GROUPS_PER_S,
    ),
    "findings, all groups": (lambda log, _: findings(log), None),
    "owner, all groups": (lambda log, _: owner(log, PARTITION), None),
    "replay, end": (lambda log, _: replay(log, shard=0), None),
    "replay --at": (lambda log, last: replay(log, group=GROUP, at_index=last - NEAR_THE_END), None),
    "diff": (
        lambda log, last: diff(
            log, (last - 2 * NEAR_THE_END, None), (last - NEAR_THE_END, None), group=GROUP
        ),
        None,
    ),
}


def ask(name: str, path: str, last_index: int) -> None:
    """Run one query in this process and print CPU seconds and peak memory as JSON."""
    log = open_node(path)
    started = time.process_time()
    QUESTIONS[name][0](log, last_index)
    took = time.process_time() - started
    print(json.dumps({"s": took, "mib": peak_mib()}))


def answer(name: str, path: str, last_index: int) -> tuple[float, float]:
    """(CPU seconds, peak MiB) of a query."""
    command = [sys.executable, "-m", "benchmarks.history_bench", "--ask", name, path, str(last_index)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    return said["s"], said["mib"]


def log_of(home: str, records: int) -> tuple[str, Written]:
    """A log of this many records, written unless it exists."""
    path, facts = os.path.join(home, f"log-{records}"), Path(home, f"log-{records}.json")
    if not facts.exists():
        written = write_log(path, records)
        facts.write_text(json.dumps(written.as_json()))
    return path, Written.from_json(json.loads(facts.read_text()))


def without_snapshots(path: str) -> list[tuple[str, str]]:
    """Hide the kept snapshots of a log; returns the renames for undoing it."""
    archive = Path(path, "shard-0", "archive")
    moved = [(str(one), f"{one}.hidden") for one in archive.glob("snapshot-*")]
    for here, there in moved:
        os.rename(here, there)
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs=2, default=[1_000_000, 5_000_000])
    parser.add_argument("--keep", help="write the logs here, or use those that are here")
    parser.add_argument("--only", help="questions whose names contain this")
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        ask(options.ask[0], options.ask[1], int(options.ask[2]))
        return
    with tempfile.TemporaryDirectory() as directory:
        home = options.keep or directory
        logs = [log_of(home, records) for records in options.records]
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        for _, written in logs:
            print(f"a log of {written.records:,} records in {written.entries:,} entries")
        names = [name for name in QUESTIONS if (options.only or "") in name]
        print(f"{'':24}{'records per CPU s':>30}{'peak MiB':>20}{'target':>12}")
        for name in names:
            table_row(name, logs)
        if "replay --at" in names:
            hidden = without_snapshots(logs[1][0])
            try:
                table_row("replay --at", logs, "replay, no snapshots")
            finally:
                for here, there in hidden:
                    os.rename(there, here)


def table_row(name: str, logs: list[tuple[str, Written]], label: str | None = None) -> None:
    """Print one query on both logs."""
    figures = [answer(name, path, written.entries) for path, written in logs]
    rates = [written.records / took for (_, written), (took, _) in zip(logs, figures, strict=True)]
    (_, less), (_, more) = figures
    target = QUESTIONS[name][1]
    said = " / ".join(f"{rate:,.0f}" for rate in rates)
    memory = f"{less:.0f} / {more:.0f} ({more / less:.2f})"
    print(
        f"{label or name:24}{said:>30}{memory:>20}{'-' if target is None else f'{target:,}':>12}", flush=True
    )


if __name__ == "__main__":
    main()
