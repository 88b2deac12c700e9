"""Speed of what-if replays: groups and records a second of one core.

Each group has members that join, leave and come back at random, by seed; the coordinator decides it once,
which gives the entries that a log would hold. Then, in the same run, three steps are timed: the members' acts
are extracted from those entries (`Extractor`), played to the coordinator once more (`GroupReplay`), and the
whole query is run (`whatif`, which plays them at least twice and makes the rows of each course).

    python -m benchmarks whatif
"""

from __future__ import annotations

import argparse
import random

from benchmarks.figures import cpu_seconds_of
from coordinator.assignors import RangeAssignor
from history.whatif.answer import whatif
from history.whatif.extract import Extractor
from history.whatif.recorded import Act, ActKind, Recorded
from history.whatif.replay import GroupReplay
from history.whatif.settings import WhatIf
from records import ConsumerGroupMemberMetadataValue, Entry, TopicMetadata

SIZES = ((10, 30, 100), (50, 200, 50))
"""Members, partitions, and number of times that a member leaves or returns."""
BEGIN_MS = 1_772_366_400_000
BETWEEN_MS = 5_000
Written = list[tuple[int, int, Entry]]


def script(group_id: str, members: int, partitions: int, changes: int, seed: int) -> Recorded:
    """Random acts of members: all join, then one after another leaves or comes back."""
    rng = random.Random(seed)
    topic = TopicMetadata(topic_id=b"o" * 16, topic_name="orders", num_partitions=partitions)
    said = ConsumerGroupMemberMetadataValue(
        client_id="app",
        client_host="/127.0.0.1",
        subscribed_topic_names=("orders",),
        rebalance_timeout_ms=60_000,
    )
    there: list[str] = []
    acts: list[Act] = []
    for number in range(members + changes):
        at_ms = BEGIN_MS + number * BETWEEN_MS
        is_leave = number >= members and rng.random() < 0.5 and len(there) > 1
        member_id = rng.choice(there) if is_leave else f"member-{number}"
        there.remove(member_id) if is_leave else there.append(member_id)
        acts.append(
            Act(
                kind=ActKind.LEAVE if is_leave else ActKind.JOIN,
                index=number + 1,
                at_ms=at_ms,
                member_id=member_id,
                metadata=said,
                topics=() if number else (topic,),
            )
        )
    return Recorded(
        group_id=group_id,
        shard=0,
        start=(),
        acts=tuple(acts),
        reactions={},
        sessions_ended=(),
        terms=(),
        first_ms=BEGIN_MS,
        last_ms=acts[-1].at_ms + BETWEEN_MS,
    )


def written(recorded: Recorded) -> Written:
    entries: Written = []
    GroupReplay(
        recorded, WhatIf(), sink=lambda index, at_ms, entry: entries.append((index, at_ms, entry))
    ).run()
    return entries


def extracted(group_id: str, entries: Written) -> Recorded:
    extractor = Extractor(group_id)
    for index, at_ms, entry in entries:
        extractor.entry(index, at_ms, entry)
    extractor.passed(entries[-1][1] + BETWEEN_MS)
    return extractor.finish()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=20)
    groups: int = parser.parse_args().groups
    for members, partitions, changes in SIZES:
        print(measured(max(1, groups * 10 // members), members, partitions, changes))


def measured(count: int, members: int, partitions: int, changes: int) -> str:
    """One size, as a line of text."""
    names = [f"group-{number}" for number in range(count)]
    logs = {
        name: written(script(name, members, partitions, changes, number)) for number, name in enumerate(names)
    }
    entries = sum(map(len, logs.values()))
    records = sum(len(entry.records) for log in logs.values() for _, _, entry in log)
    scripts = [extracted(name, log) for name, log in logs.items()]
    reading = cpu_seconds_of(lambda: [extracted(name, log) for name, log in logs.items()])
    playing = cpu_seconds_of(lambda: [written(one) for one in scripts])
    asking = cpu_seconds_of(lambda: [whatif(one, WhatIf(assignor=RangeAssignor())) for one in scripts])
    faithful = sum(whatif(one, WhatIf()).is_faithful for one in scripts)
    return (
        f"{count:3} groups of {members:3} members, {partitions:5,} partitions: {entries // count:6,} entries,"
        f" {records // count:6,} records each; read {records / reading:7,.0f} records/s, replayed"
        f" {records / playing:7,.0f} records/s, answered {count / asking:5.1f} groups/s"
        f" ({entries / asking:6,.0f} entries/s); {faithful} faithful"
    )


if __name__ == "__main__":
    main()
