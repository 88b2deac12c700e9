"""Offsets as bytes: found by group whatever the length of its id, hashed as they change."""

from __future__ import annotations

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state.offsetstore import OffsetStore, tombstone
from coordinator.state.statehash import MASK, mix
from coordinator.topics import new_topic_id
from records import ZERO_UUID, RawRecord, RecordType, encode_offset_commit, offset_commit_key

TOPIC_ID = bytes(range(16))
group_ids = st.sampled_from(["", "g", "ä" * 8, "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 70_000])
steps = st.lists(
    st.tuples(group_ids, st.sampled_from(["t", "u"]), st.integers(0, 2), st.none() | st.integers(0, 99))
)


@given(steps)
def test_against_a_plain_dictionary(steps: list[tuple[str, str, int, int | None]]) -> None:
    store, plain, raws = OffsetStore(), dict[tuple[str, str, int], int](), dict[bytes, bytes]()
    for group_id, topic, partition, offset in steps:
        key = offset_commit_key(group_id, topic, partition)
        if offset is None:
            store.apply(tombstone(key))
            plain.pop((group_id, topic, partition), None)
            raws.pop(key, None)
        else:
            raw = encode_offset_commit(key, offset, -1, "m", 5, -1, TOPIC_ID)
            store.apply(raw)
            plain[group_id, topic, partition] = offset
            raws[key] = raw.value or b""
    assert len(store) == len(plain)
    assert set(store.group_ids()) == {group_id for group_id, _, _ in plain}
    for group_id in {group_id for group_id, *_ in steps}:
        found = {(o.topic, o.partition): o.value.offset for o in store.of_group(group_id)}
        assert found == {(t, p): offset for (g, t, p), offset in plain.items() if g == group_id}
        assert store.has_group(group_id) == bool(found)
        assert store.count(group_id) == len(store.keys(group_id, 1_000)) == len(found)
    assert store.state_hash == sum(mix(key, value) for key, value in raws.items()) & MASK


@given(steps, st.data())
def test_a_run_is_the_same_as_one_by_one(
    steps: list[tuple[str, str, int, int | None]], data: st.DataObject
) -> None:
    raws = []
    for group_id, topic, partition, offset in steps:
        key = offset_commit_key(group_id, topic, partition)
        raws.append(
            tombstone(key) if offset is None else encode_offset_commit(key, offset, -1, "", 5, -1, TOPIC_ID)
        )
    other = RawRecord(RecordType.CONSUMER_GROUP_METADATA, 0, b"", None)
    cut = data.draw(st.integers(0, len(raws)))
    one, run = OffsetStore(), OffsetStore()
    for raw in raws:
        one.apply(raw)
    records = iter([*raws[:cut], other, *raws[cut:]])
    assert run.apply_run(records) is other
    assert run.apply_run(records) is None
    assert run.state_hash == one.state_hash
    for group_id, *_ in steps:
        assert run.keys(group_id, 1_000) == one.keys(group_id, 1_000)
        assert run.of_group(group_id) == one.of_group(group_id)


def test_topic_ids_are_read_off_the_end_of_a_value() -> None:
    store = OffsetStore()
    keys = [offset_commit_key("g", "t", partition) for partition in range(3)]
    for number, key in enumerate(keys):
        store.apply(encode_offset_commit(key, 1 << 40, 7, "note", 5, 9, bytes(15) + bytes([number // 2])))
    first, second = bytes(16), bytes(15) + b"\x01"
    assert list(store.topic_ids("g")) == [(keys[0], first), (keys[1], first), (keys[2], second)]


def test_topic_ids_are_of_the_keys_of_the_beginning_that_are_still_there() -> None:
    store = OffsetStore()
    keys = [offset_commit_key("g", "t", partition) for partition in range(4)]
    commits = [encode_offset_commit(key, 1, 7, "", 5, -1, bytes(16)) for key in keys]
    for commit in commits[:3]:
        store.apply(commit)
    found = store.topic_ids("g")
    assert next(found)[0] == keys[0]
    store.apply(tombstone(keys[1]))
    store.apply(commits[3])
    assert [key for key, _ in found] == keys[2:3]


def test_two_keys_that_exchange_their_values_are_noticed() -> None:
    one, other = OffsetStore(), OffsetStore()
    for store, offsets in ((one, (5, 6)), (other, (6, 5))):
        for partition, offset in enumerate(offsets):
            key = offset_commit_key("g", "t", partition)
            store.apply(encode_offset_commit(key, offset, -1, "", 5, -1, TOPIC_ID))
    assert one.state_hash != other.state_hash


def test_it_knows_how_new_a_catalog_must_be_to_know_every_topic() -> None:
    store = OffsetStore()

    def put(partition: int, topic_id: bytes) -> int:
        key = offset_commit_key("g", "t", partition)
        store.apply(encode_offset_commit(key, 1, -1, "", 5, -1, topic_id))
        return store.newest_topic_version

    assert store.newest_topic_version == 0
    assert put(0, new_topic_id(bytes(16), 300)) == 300
    assert put(1, new_topic_id(bytes(16), 7)) == 300
    assert put(2, ZERO_UUID) == 300
    assert put(3, b"\xff" * 16) == 300, "an id that is random as a whole names no version"
    assert put(0, new_topic_id(bytes(16), 1 << 20)) == 1 << 20
    store.apply(tombstone(offset_commit_key("g", "t", 0)))
    assert store.newest_topic_version == 1 << 20, "it never goes back"


def test_an_offset_that_was_written_without_a_topic_id_names_no_version() -> None:
    store = OffsetStore()
    whole = encode_offset_commit(offset_commit_key("g", "t", 0), 1, -1, "", 5, -1, ZERO_UUID)
    fields = msgpack.unpackb(whole.value or b"")
    for size in range(2, len(fields)):
        store.apply(whole._replace(value=msgpack.packb(fields[:size])))
    assert store.newest_topic_version == 0
