"""Stream offsets: the index of the next entry of each shard, and how much a batch may take.

Plain Python. Spark stores an offset as JSON in its checkpoint, so the format is permanent: ``{"cluster_id":
"...", "shards": {"-1": 12, "0": 345}}``. Invariants: an offset never goes back; a shard missing from a
stored offset is read from its beginning; an offset of one cluster is never used for another's log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from history.words import shard_name
from quorate.spark.errors import InputError, OptionError

STARTING = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next entry of each shard; all entries before it have been read."""

    cluster_id: str
    shards: Mapping[int, int]

    def document(self) -> dict[str, Any]:
        """The JSON document that Spark stores."""
        named = {str(shard): index for shard, index in sorted(self.shards.items())}
        return {"cluster_id": self.cluster_id, "shards": named}

    @classmethod
    def read(cls, document: Mapping[str, Any], cluster_id: str, begins: Mapping[int, int]) -> Offsets:
        """An offset from its `document`, other shards at ``begins``.

        Raises `InputError` for another cluster's.
        """
        said = document["cluster_id"]
        if said != cluster_id:
            raise InputError(
                f"the checkpoint belongs to cluster {said}, the log to {cluster_id}",
                "give that cluster's log, or another checkpoint folder",
            )
        stored = {int(shard): int(index) for shard, index in document["shards"].items()}
        return cls(said, {**begins, **stored})

    def to(self, end: Offsets) -> dict[int, tuple[int, int]]:
        """First and last index of each shard with entries between this offset and ``end``."""
        spans = {shard: (index, end.shards.get(shard, index) - 1) for shard, index in self.shards.items()}
        return {shard: (first, last) for shard, (first, last) in spans.items() if first <= last}


def admitted(start: Offsets, latest: Mapping[int, int], entries_max: int | None) -> Offsets:
    """The end of a batch of at most ``entries_max`` entries, shared evenly by the shards.

    What one shard does not need goes to the others. No shard goes back: one whose log ends before the offset,
    as on a node that lags, waits.
    """
    behind = {shard: max(0, latest.get(shard, index) - index) for shard, index in start.shards.items()}
    left = sum(behind.values()) if entries_max is None else entries_max
    ends = dict(start.shards)
    waiting = sorted(behind, key=lambda shard: (behind[shard], shard))
    for place, shard in enumerate(waiting):
        share = min(behind[shard], -(-left // (len(waiting) - place)))
        ends[shard] += share
        left -= share
    return Offsets(start.cluster_id, ends)


def starting_at(
    given: Mapping[str, str], begins: Mapping[int, int], latest: Mapping[int, int]
) -> dict[int, int]:
    """The start of a stream without a checkpoint, by its options; raises `OptionError`.

    ``starting_index`` is one index for all shards, or JSON by shard; ``starting`` applies to the shards that
    it does not name.
    """
    where = given.get("starting", STARTING[0]).lower()
    if where not in STARTING:
        raise OptionError(f"starting={where!r} is unknown", f"there are {', '.join(STARTING)}")
    shards = dict(begins) if where == STARTING[0] else dict(latest)
    if "starting_index" not in given:
        return shards
    named = _indexes(given["starting_index"], shards)
    strange = sorted(set(named) - set(shards))
    if strange:
        there_are = ", ".join(shard_name(shard) for shard in sorted(shards))
        raise OptionError(f"starting_index: there is no shard {strange[0]}", f"there are {there_are}")
    if "starting" in given and given["starting_index"].strip().isdecimal():
        raise OptionError("starting has no effect beside an index for all shards", "leave starting out")
    return shards | {shard: max(index, begins[shard]) for shard, index in named.items()}


def _indexes(value: str, shards: Mapping[int, int]) -> dict[int, int]:
    hint = 'give one index, or JSON by shard: {"0": 120, "-1": 5}'
    try:
        found = json.loads(value)
        named = dict.fromkeys(shards, found) if type(found) is int else {int(s): found[s] for s in found}
    except (ValueError, TypeError):
        raise OptionError(f"starting_index={value!r} cannot be read", hint) from None
    if not all(type(index) is int and index >= 1 for index in named.values()):
        raise OptionError(f"starting_index={value!r}: indexes begin with 1", hint)
    return named


def entries_max(given: Mapping[str, str]) -> int | None:
    """The value of ``max_entries_per_trigger``; raises `OptionError`."""
    value = given.get("max_entries_per_trigger")
    if value is None:
        return None
    if not value.isdecimal() or int(value) < 1:
        hint = "give the number of log entries in one batch"
        raise OptionError(f"max_entries_per_trigger={value!r} is not a number above 0", hint)
    return int(value)
