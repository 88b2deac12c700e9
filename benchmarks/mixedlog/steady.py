"""One shard with the same mix of records throughout, of any length, so that rates can be compared.

Four records in five are offset commits. The others come from groups whose members join, leave and are fenced:
epochs, targets, and each member's steps towards its target. New members get new ids, as with real clients, so
the number of ids grows with the log; the numbers of groups, concurrent members and committed partitions do
not. The log is for rates and has no plausible story: a group's first member commits arbitrary partitions,
including ones it does not own, and a member may expire right after a heartbeat.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from raftlog.env.files import join
from raftlog.storage.directory import shard_name
from records import Cause, RecordType, Trigger, encode_offset_commit
from records.entry import dump_cause
from records.ids import METADATA_SHARD

from .files import SEGMENT_BYTES, SNAPSHOT_RECORDS, START_MS, Segments, Written, group_crc, new_node
from .groups import PARTITIONS, SESSION_MS, TOPIC_ID, Group, Step, new_member_id, term_opened, topic_created

GROUPS = 2000
MEMBERS = 4
COMMITTED_AT_ONCE = (1, 3, 3, 10)
COMMITS_SHARE = 0.8
ENTRIES_PER_TERM = 100_000
ENTRY_MS = 3
CLIENTS = 7


def group_name(number: int) -> str:
    """A group's id; group 0 is in every log, and as busy as any other."""
    return f"orders-service-{number:05d}"


def write_log(
    path: str,
    records: int,
    *,
    groups: int = GROUPS,
    segment_bytes: int = SEGMENT_BYTES,
    snapshot_records: int = SNAPSHOT_RECORDS,
    seed: int = 1,
) -> Written:
    """A node's directory with one group shard of this many records; equal arguments give equal bytes."""
    identity = new_node(path, "bench", 1)
    home = join(path, shard_name(METADATA_SHARD))
    catalog = Segments(home, identity.log(METADATA_SHARD), segment_bytes, snapshot_records)
    cause, raws = topic_created()
    catalog.add(1, START_MS + ENTRY_MS, dump_cause(cause), raws, 0)
    catalog.close()
    log = Segments(join(path, shard_name(0)), identity.log(0), segment_bytes, snapshot_records)
    term = 0
    for group, (cause, raws) in entries(groups, random.Random(seed)):
        term += raws[0].type == RecordType.TERM_START
        at_ms = START_MS + (log.last_index + 1) * ENTRY_MS
        log.add(term, at_ms, dump_cause(cause), raws, 0 if group is None else group_crc(group.group_id))
        if log.records >= records:
            break
    return log.close()


def entries(groups: int, rng: random.Random) -> Iterator[tuple[Group | None, Step]]:
    """Yield a shard's decisions without end, with the groups they concern."""
    all_groups = [Group(group_name(number)) for number in range(groups)]
    joined = [0] * groups
    written = of_groups = count = term = 0
    while True:
        group: Group | None = None
        if count % ENTRIES_PER_TERM == 0:
            term += 1
            step = term_opened(term)
        elif of_groups < written * (1 - COMMITS_SHARE):
            number = rng.choice(range(groups))
            group = all_groups[number]
            step = _next_of(group, rng, START_MS + count * ENTRY_MS, joined, number)
            of_groups += len(step[1])
        else:
            group = rng.choice(all_groups)
            step = _commit(group, rng, count)
        count += 1
        written += len(step[1])
        yield group, step


def _next_of(group: Group, rng: random.Random, now_ms: int, joined: list[int], number: int) -> Step:
    step = group.settle()
    if step is not None:
        return step
    if len(group.members) < MEMBERS:
        joined[number] += 1
        return group.join(new_member_id(rng), f"app-{joined[number] % CLIENTS}", "/10.0.0.7")
    member_id = rng.choice(list(group.members))
    if rng.random() < 0.5:
        return group.expire(member_id, now_ms - SESSION_MS, now_ms)
    return group.leave(member_id)


def _commit(group: Group, rng: random.Random, count: int) -> Step:
    size = rng.choice(COMMITTED_AT_ONCE)
    first = rng.randrange(PARTITIONS - size + 1)
    cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id=next(iter(group.members), ""))
    return cause, [
        encode_offset_commit(key, count, 0, "", START_MS + count * ENTRY_MS, -1, TOPIC_ID)
        for key in group.commit_keys[first : first + size]
    ]
