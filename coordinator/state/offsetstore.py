"""Committed offsets by group: key bytes → value bytes, decoded only when read.

Nine records in ten of a real log are offsets. Keeping the bytes from the log makes applying a record a few
dictionary operations, so a restart with a million offsets takes about a second, and the state hash can use
the bytes directly. Invariants: all values have the newest version (older ones are upcast when they arrive),
and an empty group has no entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

from coordinator.state.freeing import free_incrementally
from coordinator.state.statehash import KEY_SALT, MASK, mix
from coordinator.topics import INDEX_BYTES, INDEX_END
from records import (
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    RecordType,
    decode_key,
    decode_record,
    decode_value,
    encode_record,
    offset_commit_key,
)

_OFFSET_COMMIT = int(RecordType.OFFSET_COMMIT)
_TOPIC_ID_BYTES = 16
_INDEX = slice(-INDEX_BYTES, None)
"""Position of the catalog index in a value with all fields: the end of the topic id, which is the last
field."""
_INDEX_END = INDEX_END.to_bytes(INDEX_BYTES, "big")
_KEY_BYTES_BESIDE_GROUP = 300  # at most 249 for a topic's name; then numbers, array and header

# How msgpack encodes the group id, which is the first of three fields of a key.
_FIXSTR_END, _FIXSTR_MASK, _STR8, _STR16, _STR32 = 0xC0, 0x1F, 0xD9, 0xDA, 0xDB
_LONG_STARTS = {_STR8: 3, _STR16: 4, _STR32: 6}


def _encoded(value: OffsetCommitValue) -> RawRecord:
    return encode_record(Record(OffsetCommitKey(group_id="", topic="", partition=0), value))


_ANY = _encoded(OffsetCommitValue(offset=0, commit_timestamp_ms=0))
CURRENT_VERSION = _ANY.version
_ALL_FIELDS = (_ANY.value or b"")[0]
"""First byte of a value with all fields; trailing fields may be missing, see `records.layouts`."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One offset with its key, decoded. Times in ms since the epoch."""

    topic: str
    partition: int
    value: OffsetCommitValue


class OffsetStore:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._groups: dict[bytes, dict[bytes, bytes]] = {}
        self._hash = 0
        self._newest_topic = bytes(INDEX_BYTES)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def state_hash(self) -> int:
        return self._hash & MASK

    @property
    def newest_topic_version(self) -> int:
        """The catalog version that created the newest topic of any offset ever stored here.

        An older catalog cannot tell whether an offset's topic was deleted."""
        return int.from_bytes(self._newest_topic, "big")

    def apply(self, raw: RawRecord) -> None:
        """Store one offset, or remove it if the record is a tombstone.

        Removing a missing offset does nothing."""
        self.apply_run(iter((raw,)))

    def apply_run(self, records: Iterator[RawRecord]) -> RawRecord | None:
        """Apply offset records until the end, or until the first record of another type, which is returned.

        This is the hot loop of every load and of large commits, so work common to a run of records is done
        once."""
        groups, crc, index, newest = self._groups, crc32, _INDEX, self._newest_topic
        prefix: bytes | None = None
        offsets: dict[bytes, bytes] = {}
        for raw in records:
            type_, version, key, value = raw
            if type_ > _OFFSET_COMMIT:
                return raw
            if prefix is None or not key.startswith(prefix):  # a prefix begins with its own length
                prefix = _prefix_of_key(key)
                offsets = groups.get(prefix, _NOTHING)
            if value is None:
                if (old := offsets.pop(key, None)) is not None:
                    self._hash -= mix(key, old)
                    if not offsets:
                        del groups[prefix]
                        prefix = None
                continue
            if version != CURRENT_VERSION:
                value = _upcast(raw)
            if offsets is _NOTHING:
                offsets = groups[prefix] = {}
            if newest < value[index] < _INDEX_END and value[0] == _ALL_FIELDS:
                newest = self._newest_topic = value[index]
            old = offsets.get(key)
            offsets[key] = value
            # mix(key, value) - mix(key, old): most offsets replace an older one.
            self._hash += mix(key, value) if old is None else (crc(key) + KEY_SALT) * (crc(value) - crc(old))
        self._hash &= MASK
        return None

    def get(self, key: bytes) -> OffsetCommitValue | None:
        """The offset stored under `records.offset_commit_key(...)`."""
        value = self._groups.get(_prefix_of_key(key), _NOTHING).get(key)
        return None if value is None else _decoded(key, value)

    def has(self, key: bytes) -> bool:
        """Whether an offset is stored under `records.offset_commit_key(...)`."""
        return key in self._groups.get(_prefix_of_key(key), _NOTHING)

    @property
    def num_groups(self) -> int:
        """Number of groups that have offsets."""
        return len(self._groups)

    def has_group(self, group_id: str) -> bool:
        return _prefix_of_group(group_id) in self._groups

    def count(self, group_id: str) -> int:
        return len(self._groups.get(_prefix_of_group(group_id), ()))

    def group_ids(self) -> Iterator[str]:
        """Iterate over the groups that have offsets now. Groups may be added and removed during iteration."""
        return map(_group_of_prefix, list(self._groups))

    def committed(self, key: bytes) -> CommittedOffset | None:
        """The offset stored under this key, with the key decoded too."""
        value = self._groups.get(_prefix_of_key(key), _NOTHING).get(key)
        if value is None:
            return None
        typed = _key_of(key)
        return CommittedOffset(typed.topic, typed.partition, _decoded(key, value))

    def keys(self, group_id: str, number: int | None = None) -> list[bytes]:
        """The keys of a group, or the first `number` of them."""
        return list(islice(self._groups.get(_prefix_of_group(group_id), ()), number))

    def of_group(self, group_id: str) -> list[CommittedOffset]:
        """All offsets of a group, decoded, sorted by topic and partition."""
        offsets = self._groups.get(_prefix_of_group(group_id), _NOTHING)
        found = []
        for key, value in offsets.items():
            typed = _key_of(key)
            found.append(CommittedOffset(typed.topic, typed.partition, _decoded(key, value)))
        found.sort(key=lambda offset: (offset.topic, offset.partition))
        return found

    def topic_ids(self, group_id: str) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the group's present keys, each with the topic id of its offset.

        Offsets that are removed during iteration are left out."""
        prefix = _prefix_of_group(group_id)
        for key in self.keys(group_id):
            value = self._groups.get(prefix, _NOTHING).get(key)
            if value is not None:  # the id is the last field of a value with all fields
                is_whole = value[0] == _ALL_FIELDS
                yield key, value[-_TOPIC_ID_BYTES:] if is_whole else _decoded(key, value).topic_id

    def free_incrementally(self) -> Iterator[None]:
        """Free all entries in steps. The store must not be used any more."""
        while self._groups:
            yield from free_incrementally(self._groups.popitem()[1])


_NOTHING: dict[bytes, bytes] = {}


def removal_bytes(group_id: str) -> int:
    """Upper bound for the size of one offset removal of the group in a log entry, in bytes."""
    return len(group_id.encode()) + _KEY_BYTES_BESIDE_GROUP


def tombstone(key: bytes) -> RawRecord:
    return RawRecord(_OFFSET_COMMIT, 0, key, None)


def _key_of(key: bytes) -> OffsetCommitKey:
    typed: OffsetCommitKey = decode_key(RawRecord(_OFFSET_COMMIT, CURRENT_VERSION, key, None))
    return typed


def _decoded(key: bytes, value: bytes) -> OffsetCommitValue:
    typed: OffsetCommitValue = decode_value(RawRecord(_OFFSET_COMMIT, CURRENT_VERSION, key, value))
    return typed


def _upcast(raw: RawRecord) -> bytes:
    record = decode_record(raw)
    assert isinstance(record, Record)
    assert isinstance(record.value, OffsetCommitValue)
    value = _encoded(record.value).value
    assert value is not None
    return value


def _prefix_of_group(group_id: str) -> bytes:
    return _prefix_of_key(offset_commit_key(group_id, "", 0))


def _prefix_of_key(key: bytes) -> bytes:
    size = key[1]
    return key[: 2 + (size & _FIXSTR_MASK)] if size < _FIXSTR_END else _long_prefix(key)


def _group_of_prefix(prefix: bytes) -> str:
    size = prefix[1]
    start = 2 if size < _FIXSTR_END else _LONG_STARTS[size]
    return prefix[start:].decode()


def _long_prefix(key: bytes) -> bytes:
    """The prefix of a key up to and including a group id of more than 31 bytes."""
    if key[1] == _STR8:
        return key[: 3 + key[2]]
    if key[1] == _STR16:
        return key[: 4 + int.from_bytes(key[2:4], "big")]
    return key[: 6 + int.from_bytes(key[2:6], "big")]
