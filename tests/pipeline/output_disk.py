"""A simulated disk for outputs, and checks of an output after a failure."""

from __future__ import annotations

import contextlib

from pipeline.tables import Output, OutputManifest, ShardProgress, Transaction
from pipeline.tables.disk import join, make_folders
from raftlog.env.files import write_aside
from raftlog.env.simulated_files import Crash, SimFiles

ROOT = "/out"
Rows = dict[tuple[str, str], list[bytes]]
"""The contents of the files by (table, part), sorted."""


class SimOutputFiles(SimFiles):
    """`raftlog.env.simulated_files` as a disk for outputs; a "Parquet file" has as many rows as bytes."""

    def make_root(self, path: str) -> None:
        names = path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            if not self.exists("/" + "/".join(names[:depth])):
                self.mkdir("/" + "/".join(names[:depth]))

    def remove_tree(self, path: str) -> None:
        """Remove the files only: nothing looks for folders."""
        for name in [name for name in self._names if name.startswith(f"{path}/") and not self.is_dir(name)]:
            with contextlib.suppress(OSError):
                self.unlink(name)

    def num_rows(self, path: str) -> int:
        return self.size(path)

    def crash(self, how: Crash, seed: int = 0) -> SimOutputFiles:
        after, plain = SimOutputFiles(seed), super().crash(how, seed)
        vars(after).update(vars(plain))
        return after

    def below(self, folder: str) -> list[str]:
        """The files in a folder and below it, relative to it."""
        start = f"{folder}/"
        return sorted(
            n.removeprefix(start) for n in self._names if n.startswith(start) and not self.is_dir(n)
        )


def opened(disk: SimOutputFiles) -> Output:
    return Output.open(ROOT, cluster_id="c", num_shards=2, files=disk)


def stage(tx: Transaction, table: str, part: str, by_slot: dict[str, bytes]) -> None:
    """Write files as Spark leaves them: by slot (`date=…/shard=…`), not synced, with checksum files."""
    files, root = tx._output.files, tx._output.root
    folder = f"{tx._folder}/job-{table}-{part}"
    make_folders(files, root, [folder, *(f"{folder}/{slot}" for slot in by_slot if slot)])
    for slot, content in by_slot.items():
        place = join(root, folder, slot) if slot else join(root, folder)
        file = files.open(f"{place}/part-00000.parquet", "w")
        file.pwrite(content, 0)
        file.close()
        write_aside(files, f"{place}/.part-00000.parquet.crc", b"crc")
    write_aside(files, join(root, folder, "_SUCCESS"), b"")
    tx.take(table, part, folder, sum(len(content) for content in by_slot.values()))


def content(disk: SimOutputFiles, manifest: OutputManifest) -> Rows:
    found: Rows = {}
    for file in manifest.files:
        found.setdefault((file.table, file.part), []).append(disk.read(join(ROOT, file.path)))
    return {key: sorted(rows) for key, rows in found.items()}


def after_opening(disk: SimOutputFiles) -> tuple[OutputManifest, Rows]:
    """Return the manifest and the rows after `Output.open`; no other files may be on the disk."""
    disk.process_ended()
    disk.fail = disk.on_call = None
    with opened(disk) as output:
        manifest = output.manifest
    named = {file.path for file in manifest.files}
    there = set(disk.below(ROOT))
    own = {
        "_quorate/lock",
        "_quorate/manifest.json",
        f"_quorate/files-{manifest.version:08d}.jsonl",
    }
    assert there == named | own
    return manifest, content(disk, manifest)


def first_commit(disk: SimOutputFiles) -> None:
    with opened(disk) as output:
        tx = output.begin()
        stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": b"a", "date=2026-05-01/shard=1": b"bb"})
        stage(tx, "waits", "open", {"date=2026-05-01/shard=0": b"old"})
        stage(tx, "states", "state", {"shard=0": b"old state"})
        tx.commit({0: ShardProgress(10, 10, 1), 1: ShardProgress(5, 5, 1)})


def second_commit(disk: SimOutputFiles) -> None:
    with opened(disk) as output:
        tx = output.begin()
        stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": b"ccc", "date=2026-05-02/shard=0": b"dddd"})
        stage(tx, "waits", "open", {"date=2026-05-02/shard=0": b"new"})
        tx.replaced(output.manifest.of("waits", "open"))
        stage(tx, "states", "state", {"shard=0": b"new state", "shard=1": b"more"})
        tx.replaced(output.manifest.of("states", "state"))
        tx.commit({0: ShardProgress(20, 20, 2)})


OLD: Rows = {
    ("commits", "rows"): [b"a", b"bb"],
    ("waits", "open"): [b"old"],
    ("states", "state"): [b"old state"],
}
NEW: Rows = {
    ("commits", "rows"): [b"a", b"bb", b"ccc", b"dddd"],
    ("waits", "open"): [b"new"],
    ("states", "state"): [b"more", b"new state"],
}
