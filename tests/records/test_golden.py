"""The bytes of every type and version, held fast.

A log written today must be readable for ever, so no layout may change in place.  When a field is appended and
a version raised, the new bytes are added below; a line that is here never changes and never goes.
"""

from dataclasses import replace

import pytest

from records import ZERO_UUID, Arrival, Phases, Record, RecordType, decode_record, encode_entry, encode_record
from records.cause import CAUSE_VERSION
from records.entry import dump_cause, load_cause
from records.schemas import SCHEMAS
from tests.records.samples import CAUSE, SAMPLES

GOLDEN: dict[tuple[RecordType, int], tuple[str, str]] = {
    (RecordType.OFFSET_COMMIT_LEGACY, 0): (
        "93a167a17403",
        "962affcf00000199c82cc000ffa0c41000000000000000000000000000000000",
    ),
    (RecordType.OFFSET_COMMIT, 0): (
        "93a167a17403",
        (
            "96cf000001000000000005cf00000199c82cc000cf00000199c82cc001a36dc3a9c410000102030405060708"
            "090a0b0c0d0e0f"
        ),
    ),
    (RecordType.GROUP_METADATA, 0): (
        "91a167",
        (
            "9609cf00000199c82cc000a8636f6e73756d6572a572616e6765a26d319198cdea60cdafc8a26d31c0a163aa"
            "2f3132372e302e302e31c4020001c400"
        ),
    ),
    (RecordType.CONSUMER_GROUP_METADATA, 0): (
        "91a167",
        "9307fecf00000199c82cc000",
    ),
    (RecordType.CONSUMER_GROUP_PARTITION_METADATA, 0): (
        "91a167",
        "9311919402c410000102030405060708090a0b0c0d0e0fa17491920092a161a16207",
    ),
    (RecordType.CONSUMER_GROUP_MEMBER_METADATA, 0): (
        "92a167a16d",
        (
            "9bce000493e0a163aa2f3132372e302e302e31a169c092a173a174a36f2e2aa7756e69666f726d92cdafc891"
            "92a572616e6765c401ff07919601000302a46d696e65c40101"
        ),
    ),
    (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 0): (
        "91a167",
        "9207cf00000199c82cc000",
    ),
    (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, 0): (
        "92a167a16d",
        "959193c410000102030405060708090a0b0c0d0e0f9200cd012c920607070102c40103",
    ),
    (RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, 0): (
        "92a167a16d",
        (
            "980706019193c410000102030405060708090a0b0c0d0e0f9200cd012c9206079193c4100001020304050607"
            "08090a0b0c0d0e0f9104900102c40103"
        ),
    ),
    (RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, 0): (
        "92a167a36f2e2a",
        "9311cf00000199c82cc00091a66f7264657273",
    ),
    (RecordType.TERM_START, 0): (
        "90",
        "9604010202a161a162",
    ),
    (RecordType.TOPIC, 0): (
        "91a174",
        "920cc410000102030405060708090a0b0c0d0e0f",
    ),
    (RecordType.GROUP_CONFIG, 0): (
        "92a167bb636f6e73756d65722e73657373696f6e2e74696d656f75742e6d73",
        "91a53330303030",
    ),
    (RecordType.FORMAT_LEVEL, 0): (
        "90",
        "9101",
    ),
    (RecordType.LEADERSHIP, 0): (
        "90",
        "9291039192ff02",
    ),
    (RecordType.TOPIC_RACKS, 0): (
        "91a174",
        "9191920092a161a162",
    ),
    (RecordType.TRANSACTION, 0): (
        "91a174",
        (
            "9c070301cdea6011ffcf00000199c82cc000cf00000199c82cc00106029193a66f7264657273c4100001"
            "02030405060708090a0b0c0d0e0f9200039192a16702"
        ),
    ),
    (RecordType.PENDING_OFFSET, 0): (
        "94a167a1740307",
        "990502cf00000199c82cc000a16dc410000102030405060708090a0b0c0d0e0f03112801",
    ),
    (RecordType.TRANSACTIONS_RESOLVED, 0): (
        "90",
        "9113",
    ),
    (RecordType.MEMBER_LEASES, 0): (
        "92a167a16d",
        "919193c410000102030405060708090a0b0c0d0e0f920007920ccd012c",
    ),
    (RecordType.MEMBER_NUMBER, 0): (
        "92a167a16d",
        "92cd012c01",
    ),
    (RecordType.REWRITE_GROUP, 0): (
        "91a167",
        (
            "9403a572616e6765919202a1749197cd7530a3672d31a163aa2f3132372e302e302e3191a1749192a166"
            "91049192a174920001"
        ),
    ),
    (RecordType.PUSH_GROUP, 0): (
        "91a167",
        "919197030103cd0bb8a163a8736d616c6c6573749192a1749200cd012c",
    ),
    (RecordType.REWRITE_GROUP, 1): (
        "91a167",
        (
            "9403a572616e6765919302a174c410000102030405060708090a0b0c0d0e0f9197cd7530a3672d31a163aa"
            "2f3132372e302e302e3191a1749192a16691049192a174920001"
        ),
    ),
    (RecordType.PUSH_GROUP, 1): (
        "91a167",
        (
            "939197030103cd0bb8a163a8736d616c6c6573749192a1749200cd012c9193c41000010203040506070809"
            "0a0b0c0d0e0fcd012da17403"
        ),
    ),
}
GOLDEN_CAUSES: dict[int, str] = {
    0: (
        "9c00080107a16da170aa2f3132372e302e302e31a164919403a16da174a1789192ff119195a16dcdafc80102"
        "cdafca9193c410000102030405060708090a0b0c0d0e0f9200cd012c920607"
    ),
    1: (
        "9d01080107a16da170aa2f3132372e302e302e31a164919403a16da174a1789192ff119195a16dcdafc80102"
        "cdafca9193c410000102030405060708090a0b0c0d0e0f9200cd012c92060793cd03e8cd0fa09192a16dcd0f9f"
    ),
}
CAUSES = {0: CAUSE, 1: replace(CAUSE, phases=Phases(1_000, 4_000, (Arrival("m", 3_999),)))}


def _before(type_: RecordType, version: int) -> Record:
    """The sample as that version of its value holds it: fields appended since have their defaults."""
    record = SAMPLES[type_]
    if (type_, version) == (RecordType.REWRITE_GROUP, 0):
        topics = tuple(replace(topic, topic_id=ZERO_UUID) for topic in record.value.topics)
        return replace(record, value=replace(record.value, topics=topics))
    if (type_, version) == (RecordType.PUSH_GROUP, 0):
        return replace(record, value=replace(record.value, topics=(), round=0))
    return record


@pytest.mark.parametrize("type_", SAMPLES, ids=lambda type_: type_.name)
def test_the_newest_version_is_written_as_ever(type_: RecordType) -> None:
    raw = encode_record(SAMPLES[type_])
    assert (raw.key.hex(), raw.value.hex() if raw.value else None) == GOLDEN[type_, raw.version]
    assert (raw.type, raw.version) == (type_, SCHEMAS[type_].value.version)


@pytest.mark.parametrize(("type_", "version"), GOLDEN, ids=lambda one: getattr(one, "name", str(one)))
def test_every_version_ever_written_is_read(type_: RecordType, version: int) -> None:
    key, value = map(bytes.fromhex, GOLDEN[type_, version])
    record = decode_record(encode_record(SAMPLES[type_])._replace(version=version, key=key, value=value))
    assert isinstance(record, Record)
    assert record == _before(type_, version)


def test_every_type_and_version_has_its_golden_bytes() -> None:
    assert set(SAMPLES) == set(RecordType) == {RecordType(type_) for type_ in SCHEMAS}
    wanted = {(type_, version) for type_ in SAMPLES for version in range(SCHEMAS[type_].value.version + 1)}
    assert set(GOLDEN) == wanted
    assert set(GOLDEN_CAUSES) == set(range(CAUSE_VERSION + 1))


def test_the_cause_is_written_and_read_as_ever() -> None:
    for version, golden in GOLDEN_CAUSES.items():
        assert dump_cause(CAUSES[version]).hex() == golden, "a cause has the oldest version that holds it"
        assert load_cause(bytes.fromhex(golden)) == CAUSES[version]


def test_the_envelope_is_laid_out_by_hand() -> None:
    topic = encode_record(SAMPLES[RecordType.TOPIC])
    gone = encode_record(Record(SAMPLES[RecordType.FORMAT_LEVEL].key, None))
    cause = GOLDEN_CAUSES[0]
    expected = (
        f"{len(cause) // 2:08x}" + cause
        + "03e9" "0000" "00000003" "00000014" "91a174" + GOLDEN[RecordType.TOPIC, 0][1]
        + "03eb" "0000" "00000001" "ffffffff" "90"
    )  # fmt: skip
    assert encode_entry(CAUSE, [topic, gone]).hex() == expected
