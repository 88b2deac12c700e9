"""Logs of random worlds, as the pipeline reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from history.reading.node import NodeLog
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.frames import Frame
from records import (
    Cause,
    RawRecord,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
    Trigger,
    decode_entry,
    encode_entry,
    encode_record,
)
from tests.support.memory_log import MemoryReader, MemorySnapshot
from tests.support.random_worlds import random_world


@cache
def world_log(seed: int) -> tuple[Frame, ...]:
    """Return a random schedule of two groups, one of them deleted and created again, with new terms."""
    rng = random.Random(seed)
    frames: list[Frame] = []
    for entry in random_world(seed, in_parts=bool(seed % 2)).log:
        if rng.random() < 0.01 or not frames:
            value = TermStartValue(
                term=len(frames) + 1,
                node_id=1,
                why=TermWhy.EXPIRY,
                previous_leader=2,
                incarnation="",
                boot_id="",
            )
            opened = Cause(trigger=Trigger.TERM_OPENED), (encode_record(Record(TermStartKey(), value)),)
            frames.append(frame(len(frames) + 1, entry.timestamp_ms, *opened))
        frames.append(frame(len(frames) + 1, entry.timestamp_ms, entry.cause, entry.records))
    return tuple(frames)


def frame(index: int, ms: int, cause: Cause, records: Sequence[RawRecord]) -> Frame:
    return Frame(
        index=index,
        term=1,
        commit_index=index - 1,
        timestamp_ms=ms,
        record_count=len(records),
        body=encode_entry(cause, tuple(records)),
        file="1.log",
        offset=index * 100,
        decided=True,
    )


def node_of(frames: Sequence[Frame], *, lost: range = range(0), snapshot: int = 0) -> NodeLog:
    """Return a log of one shard with some lost entries, and a snapshot that replaces one of them."""
    reader = MemoryReader(list(frames), broken=set(lost))
    if snapshot:
        state: dict[tuple[int, bytes], RawRecord] = {}
        for one in frames[:snapshot]:
            for raw in decode_entry(one.body).records:
                state.pop((raw.type, raw.key), None)
                if raw.value is not None:
                    state[raw.type, raw.key] = raw
        header = SnapshotHeader(
            cluster_id="tests",
            shard=0,
            num_shards=1,
            last_index=snapshot,
            last_term=1,
            last_timestamp_ms=frames[snapshot - 1].timestamp_ms,
            chain_hash=b"",
            state_hash=0,
            catalog_version=0,
            record_count=len(state),
        )
        reader.kept_snapshot = MemorySnapshot(header, list(state.values()))
    return NodeLog("node-1", {0: reader}, 1)
