"""The range of entries that facts take in by shard in one run, and the snapshots for lost entries.

The rule is that of `history.reading.source.Walk`: after a lost entry, state can only be trusted from a
snapshot on, and without one, facts end at the loss. A later run continues once there is a snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quorate.spark.facts.shared import Bridge
from quorate.spark.tables.progress import ShardProgress
from raftlog.env.errors import Damaged
from records.ids import METADATA_SHARD

from .losses import Lost, Range

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog
    from raftlog.env.state_machine import SnapshotHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSpan:
    """The entries of one shard that facts take in, from first to last, with the bridges between."""

    from_index: int
    to_index: int
    to_ms: int
    bridges: tuple[Bridge, ...] = ()


def spans(
    progress: Mapping[int, ShardProgress],
    ranges: Mapping[int, Range],
    lost: Sequence[Lost],
    log: InputLog,
    crossed: Mapping[int, Sequence[Bridge]],
) -> dict[int, FactSpan]:
    """Spans by group shard; ``crossed`` are the bridges of earlier runs, for a rebuild from the beginning."""
    found = {}
    for shard in sorted({*progress, *ranges} - {METADATA_SHARD}):
        known, asked = progress.get(shard, ShardProgress()), ranges.get(shard)
        mine = [one for one in lost if one.shard == shard and one.last_index > known.facts_to]
        mine = [one for one in mine if not one.is_unreadable]
        headers = list(_sound_snapshots(log, shard)) if mine and shard in log.shards else ()
        found[shard] = span_of(known, asked, mine, headers, crossed.get(shard, ()))
    return found


def span_of(
    known: ShardProgress,
    asked: Range | None,
    lost: Sequence[Lost],
    snapshots: Sequence[SnapshotHeader],
    crossed: Sequence[Bridge] = (),
) -> FactSpan:
    """The span of one shard, given its progress; ``lost`` is sorted by index."""
    to_index, to_ms = (known.records_to, known.last_ms) if asked is None else (asked.to_index, asked.to_ms)
    at, at_ms = known.facts_to, known.last_ms
    bridges: list[Bridge] = []
    for one in lost:
        while at < one.last_index and max(one.first_index - 1, at) < to_index:
            after = max(one.first_index - 1, at)
            after_ms = at_ms if after == at and bridges else one.from_ms
            bridge = _bridge(after, after_ms, to_index, snapshots, crossed)
            if bridge is None:
                return FactSpan(
                    from_index=known.facts_to + 1, to_index=after, to_ms=after_ms, bridges=tuple(bridges)
                )
            bridges.append(bridge)
            at, at_ms = bridge.index, bridge.ms
    if bridges and at == to_index:
        to_ms = at_ms
    return FactSpan(from_index=known.facts_to + 1, to_index=to_index, to_ms=to_ms, bridges=tuple(bridges))


def may_go_on(progress: Mapping[int, ShardProgress], log: InputLog) -> bool:
    """Whether a new snapshot allows facts to continue past a loss."""
    for shard, known in progress.items():
        if shard != METADATA_SHARD and shard in log.shards and known.facts_to < known.records_to:
            for header in _sound_snapshots(log, shard):
                if known.facts_to < header.last_index <= known.records_to:
                    return True
    return False


def _sound_snapshots(log: InputLog, shard: int) -> Iterator[SnapshotHeader]:
    """Snapshots that can be read to the end; a sound header does not guarantee that."""
    reader = log.log.reader(shard)
    for header in reader.snapshots():
        with contextlib.suppress(Damaged):
            if reader.snapshot(header.last_index) is not None:
                yield header


def _bridge(
    after: int, after_ms: int, to_index: int, snapshots: Sequence[SnapshotHeader], crossed: Sequence[Bridge]
) -> Bridge | None:
    for one in crossed:
        if one.after_index == after:
            return one
    for header in snapshots:
        if after < header.last_index <= to_index:
            return Bridge(
                after_index=after, after_ms=after_ms, index=header.last_index, ms=header.last_timestamp_ms
            )
    return None
