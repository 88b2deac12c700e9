"""Records decoded many at once equal those decoded one by one, whatever they contain; needs no Spark."""

from __future__ import annotations

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="needs the extra spark")
pa = pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.schema import RECORD_COLUMNS  # noqa: E402
from quorate.spark.source.bodies import FEW, walk  # noqa: E402
from quorate.spark.source.frames import Bounds, Frames, scan  # noqa: E402
from quorate.spark.source.msgarrays import GUARD, SKIP_STEPS_MAX, read_fields, read_items  # noqa: E402
from quorate.spark.source.options import Selection  # noqa: E402
from quorate.spark.source.scalar_decoder import ReadSelection  # noqa: E402
from quorate.spark.source.slices import distinct, edges_of, gather, numbered, refer, spread  # noqa: E402
from quorate.spark.source.vector import Wanted, columns_of  # noqa: E402
from raftlog.storage.frames import HEADER_BYTES, encode_frame  # noqa: E402
from raftlog.storage.segments import LogIdentity, encode_header  # noqa: E402
from records import (  # noqa: E402
    Cause,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Reason,
    Record,
    RecordsError,
    Trigger,
    encode_entry,
    encode_record,
    iter_records,
)
from records.cause import CAUSE_VERSION  # noqa: E402
from records.entry import join_body  # noqa: E402
from records.layouts import Layout, layout_of  # noqa: E402
from records.packing import pack  # noqa: E402
from records.schemas import SCHEMAS  # noqa: E402
from tests.pipeline.rows import moment  # noqa: E402

Row = dict[str, Any]
NUMBERS = (0, 1, -1, 127, 128, -32, -33, 255, 256, 65_535, 65_536, -129, -32_769)
WIDE = (*NUMBERS, 1 << 31, -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63))
NEWEST = 99
TEXTS = ("", "a", "é", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "日本" * 200)


def made(layout: Layout, rng: random.Random, version: int = NEWEST) -> list[Any]:
    """Return an array of the layout as msgpack holds it, with fields at the edges of their ranges."""
    return [item_of(column.kind.name, rng) for column in layout.columns if column.since <= version]


def item_of(kind: str, rng: random.Random) -> Any:
    name = kind.split(" ")[0]
    if name.endswith("?"):
        return None if rng.random() < 0.5 else item_of(name[:-1], rng)
    if name.endswith("[]"):
        return [item_of(name[:-2], rng) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
    if name == "uuid":
        return rng.randbytes(16)
    if name == "bytes":
        return rng.randbytes(rng.choice((0, 3, 255, 256)))
    if name == "string":
        return rng.choice(TEXTS)
    if name in ("i8", "i16", "i32", "i64"):
        limit = 1 << (int(name[1:]) - 1)
        return rng.choice([number for number in WIDE if -limit <= number < limit])
    return made(next(one for one in NESTED if one.cls.__name__ == name), rng)


def _nested() -> list[Layout]:
    from records import cause, values

    modules = (values, cause)
    found = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    classes = [one for one in found if one.__module__ in {module.__name__ for module in modules}]
    return [layout_of(one) for one in classes if hasattr(one, "__dataclass_fields__")]


NESTED = _nested()
CAUSE = encode_entry(Cause(trigger=Trigger.HEARTBEAT), [])[4:]


def raw_of(type_: int, rng: random.Random) -> RawRecord:
    schema = SCHEMAS[type_]
    value = None if rng.random() < 0.2 else pack(made(schema.value.layout, rng))
    return RawRecord(type_, 0, pack(made(schema.key, rng)), value)


def spoiled(raw: RawRecord, rng: random.Random) -> RawRecord:
    """Return the record with one byte changed, inserted or removed."""
    name = rng.choice(("key", "value"))
    data = bytearray(getattr(raw, name) or b"")
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(2))
    return raw._replace(**{name: bytes(data)})


def frames_of(bodies: list[tuple[bytes, int]]) -> tuple[bytes, Frames]:
    identity = LogIdentity(cluster_id="c", shard=0, num_shards=1)
    frames = [
        encode_frame(at, 1, at - 1, 1_000 + at, count, body) for at, (body, count) in enumerate(bodies, 1)
    ]
    data = encode_header(identity, 1) + b"".join(frames)
    found, gaps = scan(data, "segment", Bounds(first=1))
    assert (len(found), gaps) == (len(bodies), [])
    return data + GUARD, found


def test_entries_before_the_wanted_ones_are_not_checked_and_the_wanted_ones_are() -> None:
    bodies = [(b"body-%d" % number, 1) for number in range(1, 101)]
    data = bytearray(frames_of(bodies)[0].removesuffix(GUARD))

    def read(*damaged: int) -> tuple[list[int], list[int]]:
        copy = bytearray(data)
        for number in damaged:
            copy[copy.index(b"body-%d" % number) + 1] ^= 0xFF
        found, gaps = scan(bytes(copy), "segment", Bounds(first=1, decided=100), unchecked_before=91)
        return found.index.tolist(), [gap.after_index for gap in gaps]

    every = list(range(1, 101))
    assert read() == (every, [])
    assert read(50) == (every, [])
    assert read(90, 95) == ([one for one in every if one != 95], [94])
    assert read(91) == ([one for one in every if one != 91], [90])


def plainly(
    body: bytes, count: int, index: int, columns: tuple[Any, ...], selection: Selection
) -> list[Row] | None:
    """Decode the rows of one entry one by one; None if it is damaged."""
    try:
        rows = ReadSelection.of(columns, selection).entry(body, count)
    except RecordsError:
        return None
    same = {"cluster_id": "c", "shard": 0, "raft_index": index, "term": 1, "timestamp": moment(1_000 + index)}
    return [{column.name: {**row, **same}.get(column.name) for column in columns} for row in rows]


FEW_COLUMNS = ("raft_index", "sequence", "group_id", "offset", "cause_member_id", "is_tombstone", "pending")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("names", [None, FEW_COLUMNS], ids=["all", "few"])
@pytest.mark.parametrize("groups", [None, {"a", "", "x" * 256}], ids=["of all groups", "of some"])
def test_at_once_is_as_one_by_one(seed: int, names: tuple[str, ...] | None, groups: set[str] | None) -> None:
    """Regular entries give exactly their rows; the others are read one by one, and may be damaged."""
    rng = random.Random(seed)
    bodies = []
    for _ in range(300):
        raws = [raw_of(rng.choice(list(SCHEMAS)), rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 40)))]
        if raws and rng.random() < 0.3:
            place = rng.randrange(len(raws))
            raws[place] = spoiled(raws[place], rng)
        version = rng.choice((0, 0, 0, CAUSE_VERSION))
        some_cause = pack([version, *made(layout_of(Cause), rng, version)])
        cause = some_cause if rng.random() < 0.5 else CAUSE
        bodies.append((join_body(cause, raws), len(raws)))
    data, frames = frames_of(bodies)
    columns = tuple(one for one in RECORD_COLUMNS if names is None or one.name in names)
    selection = Selection(groups=None if groups is None else frozenset(groups))
    wanted = Wanted(cluster_id="c", shard=0, columns=columns, selection=selection)
    _, irregular = columns_of(data, frames, wanted)
    assert 0.05 < irregular.mean() < 0.9
    batch, still_irregular = columns_of(data, frames.of(~irregular), wanted)
    assert batch is not None
    assert not still_irregular.any()
    expected = []
    for place in np.flatnonzero(~irregular).tolist():
        body, count = bodies[place]
        rows = plainly(body, count, place + 1, columns, selection)
        assert rows is not None, f"entry {place + 1} is damage, and was taken for sound"
        expected += rows
    batch.validate(full=True)
    assert batch.to_pylist() == expected


def test_what_a_writer_writes_is_not_irregular() -> None:
    records = [
        encode_record(Record(OffsetCommitKey(group_id="g", topic="t", partition=300), _commit(metadata)))
        for metadata in ("", "x" * 300)
    ]
    member = ConsumerGroupMemberMetadataValue(client_id="c", client_host="h", subscribed_topic_names=("t",))
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    records += [encode_record(Record(key, member)), encode_record(Record(key, None))]
    cause = Cause(trigger=Trigger.MEMBER_JOINED, member_id="m", reasons=(Reason(1, "m"), Reason(99)))
    data, frames = frames_of([(encode_entry(cause, records), len(records))] * 3)
    wanted = Wanted(cluster_id="c", shard=0, columns=RECORD_COLUMNS, selection=Selection())
    batch, irregular = columns_of(data, frames, wanted)
    assert not irregular.any()
    assert batch.column("reasons").to_pylist()[0] == ["MEMBER_JOINED", "99"]
    assert batch.column("metadata").to_pylist()[:2] == [None, "x" * 300]


def _commit(metadata: str) -> OffsetCommitValue:
    return OffsetCommitValue(offset=1 << 40, commit_timestamp_ms=1 << 41, metadata=metadata)


@pytest.mark.parametrize("counts", [[1], [0, 0], [3, 1, 200, 0, 2], [2] * (3 * FEW), [1, 2, 3] * FEW])
def test_records_are_where_the_walk_says(counts: list[int]) -> None:
    rng = random.Random(len(counts))
    bodies = [(join_body(CAUSE, [raw_of(3, rng) for _ in range(count)]), count) for count in counts]
    data, frames = frames_of(bodies)
    found = walk(data, frames)
    assert not found.irregular.any()
    records = found.records
    ours = [
        (int(f), int(s), int(t), data[k:v], None if gone else data[v:e])
        for f, s, t, k, v, e, gone in zip(
            records.frame, records.sequence, records.type, records.key, records.value, records.end,
            records.is_tombstone, strict=True,
        )
    ]  # fmt: skip
    assert ours == [
        (frame, sequence, raw.type, raw.key, raw.value)
        for frame, (body, _) in enumerate(bodies)
        for sequence, raw in enumerate(iter_records(body))
    ]


@pytest.mark.parametrize("type_", SCHEMAS)
@pytest.mark.parametrize("is_wanted", [True, False])
def test_cut_short_anywhere_an_array_is_irregular(type_: int, is_wanted: bool) -> None:
    """An array is sound only at its full length, and no byte after its end is needed."""
    rng = random.Random(type_)
    layout = SCHEMAS[type_].value.layout
    wanted = [column.name for column in layout.columns] if is_wanted else []
    for _ in range(20):
        data = pack(made(layout, rng))
        ends = np.arange(len(data) + 1)
        begins = np.zeros(len(ends), np.int64)
        _, irregular = read_fields(layout.columns, data + GUARD, begins, ends, wanted=wanted)
        assert irregular[:-1].all()
        assert not irregular[-1]


def test_more_items_than_are_stepped_over_are_odd_and_not_wrong() -> None:
    layout = SCHEMAS[16].value.layout
    for count, expected in ((SKIP_STEPS_MAX - 10, False), (SKIP_STEPS_MAX + 1, True), (40_000, True)):
        data = pack([1, 2, ["t"] * count])
        _, irregular = read_fields(
            layout.columns, data + GUARD, np.array([0]), np.array([len(data)]), wanted=()
        )
        assert irregular.tolist() == [expected]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_number_beyond_its_field_is_irregular(is_wanted: bool) -> None:
    layout = layout_of(OffsetCommitValue)
    wanted = [column.name for column in layout.columns] if is_wanted else []
    good = [5, -1, 1 << 40, -1, "", bytes(16)]
    for place, number, expected in (
        (0, (1 << 63) - 1, False), (0, 1 << 63, True), (2, (1 << 64) - 1, True), (2, -(1 << 63), False),
        (1, (1 << 31) - 1, False), (1, 1 << 31, True), (1, 1 << 40, True), (1, -(1 << 31) - 1, True),
    ):  # fmt: skip
        bad = pack([*good[:place], number, *good[place + 1 :]])
        for others in ([], [pack(good)] * 3, [bad]):
            pieces = [bad, *others]
            edges = np.cumsum([0, *map(len, pieces)])
            data = b"".join(pieces) + GUARD
            _, irregular = read_fields(layout.columns, data, edges[:-1], edges[1:], wanted=wanted)
            assert irregular.tolist() == [expected and piece == bad for piece in pieces]


@pytest.mark.parametrize("counts", [[0], [3, 0, 1], [15, 16, 2, 0], [SKIP_STEPS_MAX, 1]])
def test_the_items_of_arrays_of_arrays(counts: list[int]) -> None:
    layout, rng = layout_of(Reason), random.Random(1)
    arrays = [[made(layout, rng) for _ in range(count)] for count in counts]
    pieces = [pack(items) for items in arrays]
    edges = np.cumsum([0, *map(len, pieces)])
    found, owner, fields, irregular = read_items(
        layout, b"".join(pieces) + GUARD, edges[:-1], edges[1:], wanted=["kind"]
    )
    assert not irregular.any()
    assert found.tolist() == counts
    assert owner.tolist() == [place for place, count in enumerate(counts) for _ in range(count)]
    assert fields[0].value.tolist() == [item[0] for items in arrays for item in items]


def test_cut_short_or_too_long_an_array_of_arrays_is_irregular() -> None:
    rng = random.Random(2)
    data = pack([made(layout_of(Reason), rng) for _ in range(17)])
    ends = np.arange(len(data) + 1)
    begins = np.zeros(len(ends), np.int64)
    *_, irregular = read_items(layout_of(Reason), data + GUARD, begins, ends, wanted=["kind"])
    assert irregular.tolist() == [True] * len(data) + [False]
    much = pack([[1, "", "", ""]] * (SKIP_STEPS_MAX + 1))
    *_, irregular = read_items(
        layout_of(Reason), much + GUARD, np.array([0]), np.array([len(much)]), wanted=["kind"]
    )
    assert irregular.tolist() == [True]


def test_pieces_are_gathered_and_told_apart() -> None:
    data = b"..ab.ab..c...ab"
    begin, end = np.array([2, 5, 9, 11, 13]), np.array([4, 7, 10, 11, 15])
    assert gather(data, begin, end).to_pylist() == [b"ab", b"ab", b"c", b"", b"ab"]
    codes, pieces = distinct(data, begin, end)
    assert (codes.tolist(), pieces.to_pylist()) == ([0, 0, 1, 2, 0], [b"ab", b"c", b""])
    buffer, begins, ends = edges_of(pieces, b"!")
    assert [buffer[b:e] for b, e in zip(begins, ends, strict=True)] == [b"ab", b"c", b""]
    assert buffer.endswith(b"!")


@pytest.mark.parametrize("rows", [[], [1], [0, 3], [1, 2, 4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["", "é", "xyz", "b", "a"]),
        pa.array([b"", b"1", b"22", b"3", b"4"]),
        pa.array([["a"], [], ["b", "c"], [], ["d"]]),
        pa.array([[{"t": "x", "p": [1, 2]}], [], [{"t": "y", "p": []}] * 2, [], []]),
    ],
    ids=["texts", "bytes", "lists", "nested"],
)
def test_values_are_spread_over_rows(values: Any, rows: list[int]) -> None:
    """This includes values of a slice, whose offsets do not begin at 0."""
    for start in range(len(values) - len(rows) + 1):
        some = values.slice(start, len(rows))
        column = spread(some, np.array(rows, np.int64), 5)
        column.validate(full=True)
        expected: list[Any] = [None] * 5
        for row, value in zip(rows, some.to_pylist(), strict=True):
            expected[row] = value
        assert column.to_pylist() == expected


def test_rows_refer_to_values() -> None:
    values = pa.array(["a", "b"])
    assert refer(values, np.array([1, 0, 1])).to_pylist() == ["b", "a", "b"]
    assert refer(values, np.array([-1, 1, -1])).to_pylist() == [None, "b", None]
    assert refer(values, np.array([-1, -1])).to_pylist() == [None, None]
    assert refer(pa.nulls(0, pa.string()), np.array([-1])).to_pylist() == [None]


def test_distinct_numbers_of_sixteen_bits() -> None:
    found, places = numbered(np.array([3, -1, 3, 1000, -32_768, 32_767]))
    assert found[places].tolist() == [3, -1, 3, 1000, -32_768, 32_767]
    assert sorted(found.tolist()) == [-32_768, -1, 3, 1000, 32_767]


def test_frames_with_the_magic_in_their_bodies_are_found() -> None:
    raws = [RawRecord(77, 0, b"QFR1" * 20, b"QFR1")]
    data, frames = frames_of([(join_body(CAUSE, raws), 1)] * 50)
    assert frames.index.tolist() == list(range(1, 51))
    assert frames.end.tolist()[-1] == len(data) - len(GUARD)
    assert (frames.length + HEADER_BYTES == np.diff(np.append(frames.offset, frames.end[-1]))).all()
