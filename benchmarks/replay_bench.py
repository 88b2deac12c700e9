"""Speed of replaying a log: files -> frames -> records -> state, one core.

The log is mixed as coordinators' logs are: four records in five are offset commits, by 1, 5 or 10 partitions
an entry; the others are those of groups whose members join and settle.  It is written to a real directory and
read back by the same code as `quorate log replay`.

    python -m benchmarks replay

Target: 300,000 records per s and core.  A replay to a state applies the newest record of each key; applying
every record is measured too, as `verify` and a node's start do it.  The phases are measured in the same run,
each including the one before, which shows the part to make faster.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator

from benchmarks.figures import cpu_seconds_of
from history.reading.node import ShardFiles
from history.reading.source import Walk
from history.state.replay import ShardReplay
from raftlog.env.files import OsFiles, join
from raftlog.storage.directory import TERM_FILE, TERM_KIND, NodeIdentity, format_node
from raftlog.storage.frames import encode_frame
from raftlog.storage.metafile import write_meta
from raftlog.storage.segments import log_name
from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    RawRecord,
    Record,
    TopicPartitions,
    Trigger,
    encode_entry,
    encode_offset_commit,
    encode_record,
    iter_records,
    offset_commit_key,
)

TARGET_PER_S = 300_000
GROUPS = 200
MEMBERS_PER_GROUP = 10
PARTITIONS_PER_MEMBER = 10
COMMIT_SIZES = (1, 5, 10)
GROUP_RECORDS_SHARE = 0.2
START_MS = 1_772_366_400_000
TOPIC_ID = bytes(range(16))


def commit_entries() -> Iterator[tuple[Cause, list[RawRecord]]]:
    """Commits of rising offsets, group after group, cycling through 1, 5 and 10 partitions."""
    keys = [
        [
            offset_commit_key(f"group-{group}", "orders", p)
            for p in range(MEMBERS_PER_GROUP * PARTITIONS_PER_MEMBER)
        ]
        for group in range(GROUPS)
    ]
    for turn in itertools.count():
        group, size = turn % GROUPS, COMMIT_SIZES[turn // GROUPS % len(COMMIT_SIZES)]
        first = turn * 7 % (len(keys[group]) - size + 1)
        cause = Cause(
            trigger=Trigger.OFFSETS_COMMITTED, member_id=f"member-{group}-{first // 10}", member_epoch=3
        )
        yield (
            cause,
            [
                encode_offset_commit(key, turn, 0, "", START_MS + turn, -1, TOPIC_ID)
                for key in keys[group][first : first + size]
            ],
        )


def group_entries() -> Iterator[tuple[Cause, list[RawRecord]]]:
    """A member joins, the group gets a target, the member settles: 3 entries, group after group."""
    for turn in itertools.count():
        group_id, epoch = f"group-{turn % GROUPS}", turn // GROUPS + 1
        number = turn // GROUPS % MEMBERS_PER_GROUP
        member_id = f"member-{turn % GROUPS}-{number}"
        first = number * PARTITIONS_PER_MEMBER
        owned = (
            TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(range(first, first + PARTITIONS_PER_MEMBER))),
        )
        key = {"group_id": group_id, "member_id": member_id}
        described = ConsumerGroupMemberMetadataValue(
            client_id="app",
            client_host="10.0.0.7",
            subscribed_topic_names=("orders",),
            rebalance_timeout_ms=300_000,
        )
        settled = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            state=0,
            assigned_partitions=owned,
            partitions_pending_revocation=(),
        )
        records = (
            Record(ConsumerGroupMemberMetadataKey(**key), described),
            Record(ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch)),
            Record(
                ConsumerGroupTargetAssignmentMemberKey(**key),
                ConsumerGroupTargetAssignmentMemberValue(topic_partitions=owned),
            ),
            Record(
                ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
            ),
        )
        cause = Cause(trigger=Trigger.MEMBER_JOINED, member_id=member_id)
        yield cause, [encode_record(record) for record in records]
        settles = Record(ConsumerGroupCurrentMemberAssignmentKey(**key), settled)
        yield Cause(trigger=Trigger.HEARTBEAT, member_id=member_id), [encode_record(settles)]


def write_log(path: str, records: int) -> tuple[int, int]:
    """Write a node's directory with one filled group shard; returns (records, entries) written."""
    files = OsFiles()
    format_node(files, path, NodeIdentity(cluster_id="bench", node_id=1, incarnation="bench", num_shards=1))
    segment = join(path, "shard-0", log_name(1))
    write_meta(files, join(path, "shard-0", TERM_FILE), TERM_KIND, 1, None)
    commits, groups = commit_entries(), group_entries()
    written = group_written = entries = 0
    with open(segment, "ab") as file:
        while written < records:
            of_group = group_written < written * GROUP_RECORDS_SHARE
            cause, raws = next(groups if of_group else commits)
            entries += 1
            body = encode_entry(cause, raws)
            file.write(encode_frame(entries, 1, entries - 1, START_MS + entries, len(raws), body))
            written += len(raws)
            group_written += len(raws) if of_group else 0
    return written, entries


def phases(path: str) -> dict[str, float]:
    """CPU seconds to read frames, to read and split them into records, and for two kinds of replay."""

    def walk() -> Walk:
        return Walk(0, ShardFiles(path, 0))

    def split() -> None:
        for item in walk():
            iter_records(item.body)  # type: ignore[union-attr]

    def every_record() -> int:
        replay = ShardReplay(0)
        for item in walk():
            replay.take(item.index, item.term, iter_records(item.body))  # type: ignore[union-attr]
        return replay.state_hash

    return {
        "frames": cpu_seconds_of(lambda: sum(1 for _ in ShardFiles(path, 0).frames())),
        "walk": cpu_seconds_of(lambda: sum(1 for _ in walk())),
        "records": cpu_seconds_of(split),
        "every": cpu_seconds_of(every_record),
        "replay": cpu_seconds_of(lambda: ShardReplay(0).run(walk()).state_hash),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=500_000)
    wanted: int = parser.parse_args().records
    with tempfile.TemporaryDirectory() as directory:
        path = join(directory, "node")
        records, entries = write_log(path, wanted)
        took = phases(path)
    print(f"mixed log of {records:,} records in {entries:,} entries")
    before = 0.0
    for name, label in (
        ("frames", "read and check frames"),
        ("walk", "check order and damage"),
        ("records", "split into records"),
        ("every", "apply every record"),
    ):
        step, before = took[name] - before, took[name]
        print(f"  {label:24} {step * 1e9 / records:8,.0f} ns per record")
    for name, label in (("every", "every record applied"), ("replay", "newest record of each key applied")):
        print(f"{label}: {records / took[name]:,.0f} records per CPU second (target {TARGET_PER_S:,})")


if __name__ == "__main__":
    main()
