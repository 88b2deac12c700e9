"""Tables recomputed from `quorate log dump --json`: a second opinion that shares no code with the product.

It knows docs/records.md and nothing else, and holds all rows in memory. It tells groups of the consumer
protocol; a group id that ever had a record of an older protocol is listed in `others`, with its offsets only.
Columns are named as in the export; moments are ms since 1970.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
OWNED, REVOKING, UNOWNED = "owned", "revoking", "unowned"
OLDER_PROTOCOLS = {"GROUP_METADATA", "REWRITE_GROUP", "PUSH_GROUP"}
TAKEOVERS = {"EXPIRY", "RESET", "TRANSFER"}
KEYS = {
    "group_epochs": ("shard", "group_id", "raft_index", "epoch"),
    "commits": ("shard", "raft_index", "sequence"),
    "ownership": ("shard", "group_id", "topic_id", "partition", "from_index"),
    "member_sessions": ("shard", "group_id", "member_id", "from_index"),
    "failovers": ("shard", "term"),
}
"""Columns that tell the rows of each table apart."""
OF_CONSUMER_GROUPS = ("group_epochs", "ownership", "member_sessions")
EPOCH, MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


def dumped(directory: str) -> Iterator[str]:
    """Yield the lines of the command; raises `CalledProcessError` if it ends with an error."""
    command = [sys.executable, "-m", "quorate", "log", "dump", directory, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield from process.stdout
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


@dataclass
class Recomputed:
    """Everything that a log says about its groups."""

    tables: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in KEYS})
    others: set[str] = field(default_factory=set)
    last_index: dict[int, int] = field(default_factory=dict)
    num_records: int = 0

    def last_offsets(self) -> dict[tuple[str, str, int], int | None]:
        """Group, topic and partition -> the offset in force; `None`: removed."""
        newest = sorted(self.tables["commits"], key=lambda row: (row["raft_index"], row["sequence"]))
        return {(row["group_id"], row["topic"], row["partition"]): row["offset"] for row in newest}


def recomputed(lines: Iterable[str]) -> Recomputed:
    """Read a whole log. Raises `ValueError` for a line with damage, which has no second opinion."""
    found = Recomputed()
    names: dict[str, str] = {}
    shards: dict[int, _Shard] = {}
    for text in lines:
        line = json.loads(text)
        if "damage" in line:
            raise ValueError(f"the log is damaged: {text[:200]}")
        if "entry" not in line or not line["decided"]:
            continue
        shard = shards.setdefault(line["shard"], _Shard(line["shard"], found, names))
        shard.take(line["index"], line["timestamp_ms"], line["entry"]["cause"], line["entry"]["records"])
    for shard in shards.values():
        shard.end()
    for name in OF_CONSUMER_GROUPS:
        found.tables[name] = [row for row in found.tables[name] if row["group_id"] not in found.others]
    return found


@dataclass
class _Group:
    epoch: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """Topic id -> partitions, of the topics that record 4 has."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topic id -> name."""
    regexes: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, Row] = field(default_factory=dict)
    """Member id -> value of record 5."""
    current: dict[str, Row] = field(default_factory=dict)
    """Member id -> value of record 8."""

    def partitions(self) -> dict[tuple[str, int], tuple[str, str | None]]:
        """Topic id and partition -> kind and owner, of every partition that is held or subscribed to."""
        wanted: set[str] = set()
        for value in self.members.values():
            wanted.update(value["subscribed_topic_names"])
            wanted.update(self.regexes.get(value["subscribed_topic_regex"] or "", ()))
        held: dict[tuple[str, int], tuple[str, str | None]] = {}
        for topic_id, count in self.counts.items():
            if self.topics[topic_id] in wanted:
                held.update({(topic_id, number): (UNOWNED, None) for number in range(count)})
        owners: dict[tuple[str, int], str] = {}
        for member_id, value in self.current.items():
            kinds = ((OWNED, "assigned_partitions"), (REVOKING, "partitions_pending_revocation"))
            for kind, name in kinds:
                for one in value[name]:
                    for number in one["partitions"]:
                        place = one["topic_id"], number
                        if place in owners:
                            raise ValueError(f"{place} is held by {owners[place]} and {member_id}")
                        owners[place], held[place] = member_id, (kind, member_id)
        return held


class _Shard:
    def __init__(self, shard: int, found: Recomputed, names: dict[str, str]) -> None:
        self.shard, self.found, self.names = shard, found, names
        self.groups: dict[str, _Group] = {}
        self.spans: dict[str, dict[tuple[str, int], Row]] = {}
        self.sessions: dict[tuple[str, str], Row] = {}
        self.before_ms: int | None = None

    def take(self, index: int, ms: int, cause: Row, records: list[Row]) -> None:
        touched: dict[str, int | None] = {}
        at = {"shard": self.shard, "raft_index": index, "timestamp_ms": ms}
        for sequence, record in enumerate(records):
            self.found.num_records += 1
            if "key" not in record:  # a type that this release does not know
                continue
            kind, key, value = record["type"], record["key"], record["value"]
            if kind in ("OFFSET_COMMIT", "OFFSET_COMMIT_LEGACY"):
                self._commit(at, cause, key, value, sequence)
            elif kind == "TERM_START":
                self._term(at, value)
            elif kind == "TOPIC" and value is not None:
                self.names[value["topic_id"]] = key["name"]
            elif kind in OLDER_PROTOCOLS:
                self.found.others.add(key["group_id"])
            elif kind.startswith("CONSUMER_GROUP_"):
                group = self.groups.setdefault(key["group_id"], _Group())
                touched.setdefault(key["group_id"], group.epoch)
                self._group(at, group, kind, key, value)
        for group_id, epoch_before in touched.items():
            self._epoch(at, cause, group_id, epoch_before)
            self._spans(group_id, index, ms)
        self.before_ms = ms
        self.found.last_index[self.shard] = index

    def _commit(self, at: Row, cause: Row, key: Row, value: Row | None, sequence: int) -> None:
        epoch = (value or {}).get("leader_epoch", -1)
        row = {
            **at,
            **key,
            "sequence": sequence,
            "offset": None if value is None else value["offset"],
            "leader_epoch": None if epoch == -1 else epoch,
            "metadata": (value or {}).get("metadata") or None,
            "member_id": cause["member_id"] or None,
            "member_epoch": None if cause["member_epoch"] == -1 else cause["member_epoch"],
        }
        self.found.tables["commits"].append(row)

    def _term(self, at: Row, value: Row) -> None:
        previous, gap_ms = value["previous_leader"], None
        if self.before_ms is not None:
            gap_ms = at["timestamp_ms"] - self.before_ms
        row = {
            **at,
            "term": value["term"],
            "node_id": value["node_id"],
            "why": value["why"],
            "gap_ms": gap_ms,
        }
        row |= {
            "previous_leader": None if previous == -1 else previous,
            "is_takeover": value["why"] in TAKEOVERS,
        }
        self.found.tables["failovers"].append(row)

    def _epoch(self, at: Row, cause: Row, group_id: str, before: int | None) -> None:
        """An entry is applied whole: an epoch that it begins and ends is none."""
        epoch = self.groups[group_id].epoch
        if epoch is not None and epoch != before:
            said = {"trigger": cause["trigger"], "reasons": [one["kind"] for one in cause["reasons"]]}
            self.found.tables["group_epochs"].append({**at, "group_id": group_id, "epoch": epoch, **said})

    def _group(self, at: Row, group: _Group, kind: str, key: Row, value: Row | None) -> None:
        match kind.removeprefix("CONSUMER_GROUP_"):
            case "METADATA":
                group.epoch = None if value is None else value["epoch"]
            case "PARTITION_METADATA":
                topics = [] if value is None else value["topics"]
                group.counts = {one["topic_id"]: one["num_partitions"] for one in topics}
                group.topics = {one["topic_id"]: one["topic_name"] for one in topics}
                self.names |= group.topics
            case "REGULAR_EXPRESSION":
                group.regexes[key["regular_expression"]] = [] if value is None else value["topics"]
            case "MEMBER_METADATA":
                self._session(at, key["group_id"], key["member_id"], value)
                _put(group.members, key["member_id"], value)
            case "CURRENT_MEMBER_ASSIGNMENT":
                _put(group.current, key["member_id"], value)

    def _session(self, at: Row, group_id: str, member_id: str, value: Row | None) -> None:
        row = self.sessions.get((group_id, member_id))
        if value is None:
            if row is not None:
                del self.sessions[group_id, member_id]
                self.found.tables["member_sessions"].append(_ended(row, at["raft_index"], at["timestamp_ms"]))
            return
        if row is None:
            row = {"shard": self.shard, "group_id": group_id, "member_id": member_id}
            row |= {"from_index": at["raft_index"], "from_ms": at["timestamp_ms"]}
            self.sessions[group_id, member_id] = row
        row |= {name: value[name] for name in ("instance_id", "client_id", "client_host")}

    def _spans(self, group_id: str, index: int, ms: int) -> None:
        group, spans = self.groups[group_id], self.spans.setdefault(group_id, {})
        now = group.partitions()
        for place in [
            place for place, row in spans.items() if now.get(place) != (row["kind"], row["member_id"])
        ]:
            self.found.tables["ownership"].append(_ended(spans.pop(place), index, ms))
        for place in now.keys() - spans.keys():
            kind, member_id = now[place]
            row = {"shard": self.shard, "group_id": group_id, "topic_id": place[0], "partition": place[1]}
            row |= {"topic": self.names.get(place[0], place[0]), "kind": kind, "member_id": member_id}
            spans[place] = {**row, "epoch": group.epoch, "from_index": index, "from_ms": ms}

    def end(self) -> None:
        left = [row for spans in self.spans.values() for row in spans.values()]
        self.found.tables["ownership"] += [_ended(row, None, None) for row in left]
        self.found.tables["member_sessions"] += [_ended(row, None, None) for row in self.sessions.values()]


def _put(held: dict[str, Row], key: str, value: Row | None) -> None:
    if value is None:
        held.pop(key, None)
    else:
        held[key] = value


def _ended(row: Row, index: int | None, ms: int | None) -> Row:
    duration_ms = None if ms is None else ms - row["from_ms"]
    return {**row, "to_index": index, "to_ms": ms, "duration_ms": duration_ms}


def differences(said: Recomputed, tables: Mapping[str, Iterable[Row]]) -> list[str]:
    """Return each row of a table that the log does not say, and each that a table lacks, in words.

    `tables` are rows of an export, or of an output of the pipeline, whose moments are datetimes.
    """
    found: list[str] = []
    for name, rows in tables.items():
        theirs: dict[tuple[Any, ...], Row] = {}
        for row in map(_in_ms, rows):
            if name in OF_CONSUMER_GROUPS and row["group_id"] in said.others:
                continue
            key = tuple(row[column] for column in KEYS[name])
            if key in theirs:
                found.append(f"{name} {key}: twice")
            theirs[key] = row
        for row in said.tables[name]:
            key = tuple(row[column] for column in KEYS[name])
            other = theirs.pop(key, None)
            if other is None:
                found.append(f"{name} {key}: missing")
                continue
            values = {
                column: (value, other[column]) for column, value in row.items() if value != other[column]
            }
            if values:
                found.append(f"{name} {key}: {values}")
        found += [f"{name} {key}: not in the log" for key in theirs]
    return found


def _in_ms(row: Row) -> Row:
    """`from_time` as `from_ms`, `timestamp` as `timestamp_ms`."""
    return {_name_in_ms(name): _value_in_ms(value) for name, value in row.items()}


def _name_in_ms(name: str) -> str:
    if name == "timestamp":
        return "timestamp_ms"
    return name.removesuffix("_time") + "_ms" if name.endswith("_time") else name


def _value_in_ms(value: Any) -> Any:
    return round((value - EPOCH) / MILLISECOND) if isinstance(value, datetime) else value
