"""Speed of encoding and decoding records; run with `python -m benchmarks records`.

The log that replay reads is nine tenths offset commits, mostly one small entry each. Therefore both the
records of a large entry and entries of one record are measured. Figures are the best of a few rounds, in
thousands per second.
"""

from collections.abc import Callable
from time import perf_counter

from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    MemberState,
    RawRecord,
    Record,
    Stamped,
    TopicPartitions,
    Trigger,
    compact,
    decode_cause,
    decode_key,
    decode_record,
    decode_value,
    encode_entry,
    encode_offset_commit,
    encode_record,
    group_id_of,
    iter_records,
    offset_commit_key,
    record_to_json,
)

ROUNDS = 5
RECORDS = 20_000
TOPIC_ID = bytes(range(16))
CAUSE = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id="Zm9vYmFyYmF6cXV4cXV1eA", member_epoch=7)


def best_thousands_per_second(work: Callable[[], object], count: int) -> float:
    """The best rate of a few rounds of `work`, which handles `count` items."""
    seconds = []
    for _ in range(ROUNDS):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return count / min(seconds) / 1000


def commit(partition: int) -> RawRecord:
    """An offset commit as sent by a client of moderate age."""
    key = offset_commit_key("payments-consumers", "orders", partition % 100)
    return encode_offset_commit(key, 123_456 + partition, 5, "", 1_760_000_000_000, -1, TOPIC_ID)


def assignment() -> Record:
    """A member that owns ten partitions of each of two topics."""
    owned = tuple(
        TopicPartitions(topic_id=bytes([n]) * 16, partitions=tuple(range(10)), assignment_epochs=(7,) * 10)
        for n in (1, 2)
    )
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id="payments", member_id=CAUSE.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=7,
            previous_member_epoch=6,
            state=MemberState.STABLE,
            assigned_partitions=owned,
            partitions_pending_revocation=(),
        ),
    )


def main() -> None:
    """Measure and print one line for each."""
    commits = [commit(n) for n in range(RECORDS)]
    key = commits[0].key
    large, small = encode_entry(CAUSE, commits), [encode_entry(CAUSE, [raw]) for raw in commits]
    member = assignment()
    members = [encode_record(member)] * RECORDS
    stamped = [Stamped(n, n, raw) for n, raw in enumerate(commits)]
    measured: list[tuple[str, Callable[[], object]]] = [
        (
            "encode_offset_commit",
            lambda: [
                encode_offset_commit(key, n, 5, "", 1_760_000_000_000, -1, TOPIC_ID) for n in range(RECORDS)
            ],
        ),
        ("offset_commit_key", lambda: [offset_commit_key("payments", "orders", n) for n in range(RECORDS)]),
        ("encode_entry, one commit each", lambda: [encode_entry(CAUSE, [raw]) for raw in commits]),
        ("encode_entry, all in one", lambda: encode_entry(CAUSE, commits)),
        ("iter_records, all in one", lambda: iter_records(large)),
        ("iter_records, all in one, memoryview", lambda: iter_records(memoryview(large))),
        ("iter_records, one commit each", lambda: [iter_records(body) for body in small]),
        ("decode_cause", lambda: [decode_cause(body) for body in small]),
        ("group_id_of", lambda: [group_id_of(raw) for raw in commits]),
        ("decode_key, commit", lambda: [decode_key(raw) for raw in commits]),
        ("decode_value, commit", lambda: [decode_value(raw) for raw in commits]),
        ("decode_record, commit", lambda: [decode_record(raw) for raw in commits]),
        ("decode_record, current assignment", lambda: [decode_record(raw) for raw in members]),
        ("encode_record, current assignment", lambda: [encode_record(member) for _ in members]),
        ("record_to_json, commit", lambda: [record_to_json(raw) for raw in commits]),
        ("compact", lambda: compact(stamped, now_ms=RECORDS, delete_retention_ms=0)),
    ]
    for name, work in measured:
        print(f"{name:<40}{best_thousands_per_second(work, RECORDS):>9,.0f} k/s")


if __name__ == "__main__":
    main()
