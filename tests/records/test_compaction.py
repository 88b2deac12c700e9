"""Compaction keeps the newest record of each key, and a tombstone until its retention has passed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from records import RawRecord, Stamped, compact

RETENTION_MS = 100

# Few keys, types known (1, 5) and unknown (77), so that overwriting, deleting and reviving all happen often.
steps = st.tuples(
    st.sampled_from([1, 5, 77]),
    st.sampled_from([b"a", b"b", b"c"]),
    st.none() | st.sampled_from([b"", b"v", b"w"]),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Stamped]:
    """A log whose clock never runs backwards; several records may share an index, as in one entry."""
    log: list[Stamped] = []
    index = now_ms = 0
    for type_, key, value in draw(st.lists(steps, max_size=25)):
        index += draw(st.integers(0, 2))
        now_ms += draw(st.integers(0, 60))
        log.append(Stamped(index, now_ms, RawRecord(type_, 0, key, value)))
    return log


def at(index: int, type_: int, key: bytes, value: bytes | None, timestamp_ms: int = 0) -> Stamped:
    """A record of a hand-written log."""
    return Stamped(index, timestamp_ms, RawRecord(type_, 0, key, value))


def state(log: list[Stamped]) -> dict[tuple[int, bytes], bytes]:
    """Return the state that a reader of the log has at its end."""
    believed: dict[tuple[int, bytes], bytes] = {}
    for one in log:
        identity = (one.record.type, one.record.key)
        if one.record.value is None:
            believed.pop(identity, None)
        else:
            believed[identity] = one.record.value
    return believed


def last_ms(log: list[Stamped]) -> int:
    """The log's own clock."""
    return log[-1].timestamp_ms if log else 0


def test_the_newest_of_each_key_stays_in_the_order_of_last_writes() -> None:
    log = [
        at(1, 1, b"a", b"old"),
        at(2, 1, b"b", b"only"),
        at(3, 5, b"a", b"another type"),
        at(4, 77, b"a", b"an unknown type"),
        at(5, 1, b"a", b"new"),
    ]
    assert compact(log, now_ms=0, delete_retention_ms=RETENTION_MS) == [log[1], log[2], log[3], log[4]]


def test_a_legacy_offset_does_not_outlive_its_deletion() -> None:
    """Record types 0 and 1 have the same keys and are the same offsets."""
    log = [at(1, 0, b"a", b"v"), at(2, 1, b"a", None), at(3, 0, b"b", b"old"), at(4, 1, b"b", b"new")]
    assert compact(log, now_ms=500, delete_retention_ms=RETENTION_MS) == [log[3]]


def test_within_one_entry_the_later_record_wins() -> None:
    log = [at(1, 1, b"a", b"first"), at(1, 1, b"a", b"second")]
    assert compact(log, now_ms=0, delete_retention_ms=RETENTION_MS) == log[1:]


def test_a_tombstone_stays_until_its_retention_has_passed_on_the_logs_clock() -> None:
    log = [at(1, 1, b"a", b"v", 10), at(2, 1, b"a", None, 20)]
    for now_ms, kept in [(20, True), (119, True), (120, False), (500, False)]:
        assert compact(log, now_ms=now_ms, delete_retention_ms=RETENTION_MS) == (log[1:] if kept else [])


def test_an_empty_value_is_not_a_tombstone() -> None:
    log = [at(1, 1, b"a", b"", 0)]
    assert compact(log, now_ms=10_000, delete_retention_ms=0) == log


def test_a_key_that_lives_again_keeps_its_value() -> None:
    log = [at(1, 1, b"a", b"v"), at(2, 1, b"a", None), at(3, 1, b"a", b"again")]
    assert compact(log, now_ms=10_000, delete_retention_ms=0) == log[2:]


def test_any_iterable_will_do() -> None:
    log = [at(1, 1, b"a", b"v"), at(2, 1, b"a", b"w")]
    assert compact(iter(log), now_ms=0, delete_retention_ms=0) == log[1:]
    assert compact([], now_ms=0, delete_retention_ms=0) == []


@settings(max_examples=150, deadline=None)
@given(logs())
def test_a_reader_of_the_compacted_log_ends_with_the_same_state(log: list[Stamped]) -> None:
    compacted = compact(log, now_ms=last_ms(log), delete_retention_ms=RETENTION_MS)
    assert state(compacted) == state(log)
    identities = [(one.record.type, one.record.key) for one in compacted]
    assert len(set(identities)) == len(identities)
    places = [log.index(one) if log.count(one) == 1 else None for one in compacted]
    known = [place for place in places if place is not None]
    assert known == sorted(known)


@settings(max_examples=150, deadline=None)
@given(logs())
def test_a_reader_that_stopped_within_the_retention_learns_of_every_end(log: list[Stamped]) -> None:
    compacted = compact(log, now_ms=last_ms(log), delete_retention_ms=RETENTION_MS)
    for behind in range(len(log) + 1):
        if behind < len(log) and last_ms(log) - log[behind].timestamp_ms >= RETENTION_MS:
            continue
        assert state(log[:behind] + compacted) == state(log)


@settings(max_examples=150, deadline=None)
@given(logs(), st.integers(0, 25))
def test_compacting_again_changes_nothing_and_by_parts_gives_the_same(log: list[Stamped], cut: int) -> None:
    now_ms = last_ms(log)
    whole = compact(log, now_ms=now_ms, delete_retention_ms=RETENTION_MS)
    assert compact(whole, now_ms=now_ms, delete_retention_ms=RETENTION_MS) == whole
    earlier = compact(log[:cut], now_ms=last_ms(log[:cut]), delete_retention_ms=RETENTION_MS)
    assert compact(earlier + log[cut:], now_ms=now_ms, delete_retention_ms=RETENTION_MS) == whole
