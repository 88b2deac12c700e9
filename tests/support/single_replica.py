"""A state machine that records its calls, and one replica of it on a `ManualHost`."""

from __future__ import annotations

from typing import Any

from raftlog.env.files import Files
from raftlog.env.obstacles import Obstacle
from raftlog.env.settings import LogSettings
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.clock import AgreedClock
from raftlog.replica.replica import Replica
from raftlog.storage.directory import NodeDirectory, NodeIdentity, format_node, open_node
from raftlog.storage.frames import Frame, frames_in
from records import Cause, RawRecord, RecordType, Trigger, encode_entry, iter_records
from tests.support.manual_host import ManualHost

PATH = "/data/node-1"
IDENTITY = NodeIdentity(cluster_id="cluster-a", node_id=1, incarnation="first", num_shards=1)
CAUSE = Cause(trigger=Trigger.OFFSETS_COMMITTED)
SETTINGS = LogSettings(segment_bytes=1 << 20, snapshot_tail_records=1_000_000)


def record(key: str, value: str | None) -> RawRecord:
    """A record of a type that only tests use."""
    data = None if value is None else value.encode()
    return RawRecord(RecordType.GROUP_CONFIG, 0, _key(key), data)


def _key(text: str) -> bytes:
    data = text.encode()
    return b"\x92\xd9" + bytes([len(data)]) + data + b"\xa1x"  # msgpack [text, "x"]


def entry(*pairs: tuple[str, str | None]) -> bytes:
    """An entry's body."""
    return encode_entry(CAUSE, [record(key, value) for key, value in pairs])


class KeyValues:
    """A projection with the newest value of each key, and a record of every call."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, bytes], bytes] = {}
        self.applied = 0
        self.frames: list[tuple[int, int]] = []
        self.committed_index = 0
        self.ready_terms: list[int] = []
        self.restored = 0
        self.fail_at: int | None = None
        self.hindered_by = Obstacle.NONE

    def take(self, index: int, body: bytes) -> None:
        """Apply one entry."""
        if index == self.fail_at:
            raise ValueError("this entry cannot be applied")
        for raw in iter_records(body):
            if raw.value is None:
                self.values.pop((raw.type, raw.key), None)
            else:
                self.values[raw.type, raw.key] = raw.value
        self.applied = index

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        for raw in records:
            if raw.value is not None:
                self.values[raw.type, raw.key] = raw.value
        self.applied = header.last_index
        self.restored += len(records)

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        assert index == self.applied + 1, f"{index} after {self.applied}"
        self.take(index, body)
        self.frames.append((index, term))

    def committed(self, index: int) -> None:
        assert index >= self.committed_index
        self.committed_index = index

    def ready(self, term: int) -> None:
        self.ready_terms.append(term)

    def deposed(self, reason: str) -> None:
        raise AssertionError(reason)

    def leading(self, term: int) -> None:
        raise AssertionError("a node that is alone leads from its start on")

    def followed(self, leader_id: int | None) -> None:
        raise AssertionError("a node that is alone has no other leader")

    def proven(self, proven_ms: float) -> None:
        raise AssertionError("a node that is alone needs no proof")

    def reset(self) -> None:
        raise AssertionError("nobody replaces what a node that is alone has written")

    def observe_obstacles(self, now_ms: float) -> None: ...

    def obstacle(self) -> Obstacle:
        return self.hindered_by

    def state_hash(self) -> int:
        total = 0
        for (kind, key), value in self.values.items():
            total ^= hash_bytes(kind.to_bytes(2, "big") + key + b"=" + value)
        return total

    def applied_index(self) -> int:
        return self.applied

    def catalog_version(self) -> int:
        return 7


def hash_bytes(data: bytes) -> int:
    """u64, the same in every process."""
    from hashlib import blake2b

    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class SingleReplica:
    """One shard's replica with its machine, on a host of its own."""

    def __init__(
        self, files: Files, settings: LogSettings = SETTINGS, *, path: str = PATH, boot: int = 1
    ) -> None:
        self.host = ManualHost(files, seed=boot)
        self.host.now_ms = boot * 1000.0
        self.machine = KeyValues()
        self.directory: NodeDirectory = open_node(files, path, self.host.fresh_id)
        self.clock = AgreedClock(self.host)
        self.replica = Replica(self.host, self.directory, 0, self.machine, settings, None, self.clock)

    def start(self) -> SingleReplica:
        """Start, and run until the replica is idle."""
        self.replica.start()
        self.host.run()
        return self

    def put(self, *pairs: tuple[str, str | None]) -> int:
        """Apply and propose one entry, as a runtime does; not yet synced."""
        body = entry(*pairs)
        index = self.replica.next_index
        self.machine.take(index, body)
        assert self.replica.propose(body, len(pairs), self.replica.time_at(self.host.monotonic_ms())) == index
        return index

    def put_synced(self, *pairs: tuple[str, str | None]) -> int:
        """`put`, and run until the replica is idle."""
        index = self.put(*pairs)
        self.host.run()
        return index

    def stop(self) -> None:
        """Stop cleanly."""
        done: list[Any] = []
        self.replica.stop(lambda: done.append(True))
        self.host.advance(10)
        assert done == [True]
        self.directory.close()


def formatted(files: Files, path: str = PATH) -> Files:
    """Return `files` with a formatted directory."""
    format_node(files, path, IDENTITY)
    return files


def committed(replica: Replica, from_index: int = 1, bytes_max: int = 1 << 20) -> list[Frame]:
    """Return the committed log of a running replica from an index on, read in parts of `bytes_max`."""
    found: list[Frame] = []
    while more := frames_in(replica.log.read(from_index + len(found), bytes_max)):
        found += more
    return found
