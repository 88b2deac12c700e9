"""A process that writes to an output on the real disk and is killed half-way (`test_tables_kill.py`).

`kill_output.py OUT STEP` sends SIGKILL to itself before the STEPth call of a commit that changes the disk;
`kill_output.py OUT hold` opens the output, prints that it has, and waits for the end of its input.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pipeline.tables import Output, ShardProgress, Transaction
from pipeline.tables.disk import OsOutputFiles

CHANGING = ("open", "rename", "unlink", "mkdir", "fsync_dir", "remove_tree")


class MortalFiles(OsOutputFiles):
    """The real disk, until a certain call kills the process."""

    def __init__(self) -> None:
        self.left = -1
        """Number of calls until the kill; negative for none."""

    def __getattribute__(self, name: str) -> Any:
        if name in CHANGING and self.left >= 0:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return super().__getattribute__(name)

    def num_rows(self, path: str) -> int:
        return 1


def stage(tx: Transaction, table: str, part: str, slot: str, content: str) -> None:
    folder = f"job-{table}-{part}"
    place = Path(tx.staging, folder, slot)
    place.mkdir(parents=True)
    (place / "part-00000.parquet").write_text(content)
    tx.take(table, part, f"{tx._folder}/{folder}", 1)


def commit(out: str, number: int, files: MortalFiles, calls: int = -1) -> None:
    with Output.open(out, cluster_id="c", files=files) as output:
        tx = output.begin()
        stage(tx, "commits", "rows", f"date=2026-05-0{number}/shard=0", f"commits {number}")
        stage(tx, "waits", "open", "date=2026-05-01/shard=0", f"waits {number}")
        tx.replaced(output.manifest.of("waits", "open"))
        files.left = calls
        tx.commit({0: ShardProgress(number, number, 1)})
        files.left = -1


def main() -> None:
    out, step = sys.argv[1:]
    if step == "hold":
        with Output.open(out, cluster_id="c"):
            print("open", flush=True)
            sys.stdin.read()
        return
    commit(out, 2, MortalFiles(), int(step))
    print("committed", flush=True)


if __name__ == "__main__":
    main()
