"""`whatif`: a replay under the recorded settings equals the record; known stories under others, by hand."""

from __future__ import annotations

from typing import Any, Final

import pytest

from coordinator.assignors import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    PartitionAssignorError,
    RangeAssignor,
    UniformAssignor,
)
from coordinator.limits import GroupSettings
from history.facts.rows import SessionEnd
from history.whatif.answer import WhatIfResult, whatif
from history.whatif.extract import CLASSIC, OFFSETS_ONLY, Extractor
from history.whatif.recorded import Recorded
from history.whatif.replay import GroupReplay
from history.whatif.settings import WhatIf, WhatIfError, assignor_named
from records import (
    Cause,
    Entry,
    GroupMetadataKey,
    GroupMetadataValue,
    ReasonKind,
    Record,
    RecordType,
    Trigger,
    compact,
    encode_record,
)
from records.ids import topic_id_text
from tests.support.world import FIRST_TOPIC, WALL_START_MS, Client, World
from wire.apis import ApiKey
from wire.errors import ErrorCode

from .members import GROUP, History, entries_of

UNIFORM, RANGE = ("uniform", "range"), ("range", "uniform")
OF_THE_CATALOG = {RecordType.CONSUMER_GROUP_PARTITION_METADATA, RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION}
"""Their values name a version of the catalog, and a replay knows the group's own topics only."""

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT

Told = list[tuple[int, list[tuple[int, str, str]], list[tuple[int, bytes, bytes | None]]]]


def told(entries: list[tuple[int, int, Entry]]) -> Told:
    """Reduce entries to what a replay must repeat: time, reasons, every byte but the catalog's versions."""
    return [
        (
            at_ms,
            [(int(reason.kind), reason.member_id, reason.topic) for reason in entry.cause.reasons],
            [
                (raw.type, raw.key, None if raw.type in OF_THE_CATALOG else raw.value)
                for raw in entry.records
                if raw.type != RecordType.CONSUMER_GROUP_PARTITION_METADATA
            ],
        )
        for _, at_ms, entry in entries
    ]


def in_any_order(entries: Told) -> Told:
    """Members come in the order of their records, which a snapshot does not keep."""
    return [(at_ms, sorted(why), sorted(raws, key=repr)) for at_ms, why, raws in entries]


SEEDS: Final = (*range(7), 19)
"""The last is the one in which a member joins again."""


def replayed(script: Recorded, order: tuple[str, ...]) -> Told:
    entries: list[tuple[int, int, Entry]] = []
    GroupReplay(script, WhatIf(), order, lambda index, ms, entry: entries.append((index, ms, entry))).run()
    return told(entries)


@pytest.mark.parametrize("with_regexes", [False, True], ids=["names", "expressions"])
@pytest.mark.parametrize("is_paced", [False, True], ids=["at once", "paced"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_under_the_recorded_settings_is_the_record(
    seed: int, is_paced: bool, with_regexes: bool
) -> None:
    order = UNIFORM if seed % 2 else RANGE
    history = History(seed, order, with_regexes=with_regexes)
    spent_ms = [0.0]

    def stopwatch() -> float:
        spent_ms[0] += history.rng.choice([0.1, 5.0, 20.0, 90.0])
        return spent_ms[0]

    if is_paced:
        history.world.stopwatch = stopwatch
    history.run(60_000)
    script = history.recorded()
    assert len(history.entries) > 50
    assert replayed(script, order) == told(history.entries)
    result = whatif(script, WhatIf())
    assert result.is_faithful
    assert result.whatif == result.really


@pytest.mark.parametrize("seed", range(4))
def test_racks_are_replayed_from_record_4(seed: int) -> None:
    """The log does not say which assignor asked for racks, but what it was told: every epoch comes again."""
    history = History(seed, UNIFORM, with_racks=True).run(120_000)
    reasons = {reason.kind for _, _, entry in history.entries for reason in entry.cause.reasons}
    assert reasons >= {ReasonKind.TOPIC_RACKS_CHANGED, ReasonKind.RACK_CHANGED}
    script = history.recorded()
    assert replayed(script, UNIFORM) == told(history.entries)
    assert whatif(script, WhatIf()).is_faithful


def test_the_histories_contain_every_kind_of_event() -> None:
    """Else the test above would hold less than it seems to."""
    seen = {
        Trigger(entry.cause.trigger)
        for seed in SEEDS
        for with_regexes in (False, True)
        for _, _, entry in History(seed, UNIFORM, with_regexes=with_regexes).run(60_000).entries
    }
    assert seen >= {
        Trigger.MEMBER_JOINED,
        Trigger.MEMBER_REJOINED,
        Trigger.MEMBER_UPDATED,
        Trigger.MEMBER_ACKED,
        Trigger.MEMBER_LEFT,
        Trigger.MEMBER_AWAY,
        Trigger.MEMBER_REPLACED,
        Trigger.SESSION_EXPIRED,
        Trigger.REBALANCE_EXPIRED,
        Trigger.TOPIC_GROWN,
        Trigger.TOPIC_DELETED,
        Trigger.REGEX_RESOLVED,
    }


def test_the_log_may_begin_with_a_snapshot() -> None:
    history = History(3, UNIFORM).run(60_000)
    entries = history.entries
    cut = len(entries) // 2
    index, at_ms, _ = entries[cut - 1]
    stamped = [one for one in history.world.stamped() if one.index <= index]
    start = [one.record for one in compact(stamped, now_ms=at_ms, delete_retention_ms=0)]
    extractor = Extractor(GROUP)
    extractor.begin_with([raw for raw in start if raw.type in range(3, 9)], index, at_ms)
    for index, at_ms, entry in entries[cut:]:
        extractor.entry(index, at_ms, entry)
    extractor.passed(WALL_START_MS + int(history.world.now_ms))
    script = extractor.finish()
    assert in_any_order(replayed(script, UNIFORM)) == in_any_order(told(entries[cut:]))
    assert whatif(script, WhatIf()).is_faithful


# Known stories. Times in ms from the begin of the story; nothing happens by chance.


class Story:
    """A group made by hand: members beat when the story says so."""

    def __init__(self, *, session_ms: int = 10_000, order: tuple[str, ...] = UNIFORM) -> None:
        self.world = World(GroupSettings(session_timeout_ms=session_ms, assignors=order))
        self.begin_ms = self.world.now_ms
        self.notes: list[dict[str, Any]] = []

    def at(self, ms: int) -> Story:
        self.world.sleep(self.begin_ms + ms - self.world.now_ms)
        return self

    def client(
        self, name: str, *topics: str, rebalance_ms: int = 60_000, instance: str | None = None
    ) -> Client:
        made = Client(self.world, name, topics=topics or ("orders",), rebalance_timeout_ms=rebalance_ms)
        made.instance_id = instance
        return made

    def keep(self, *clients: Client, from_ms: int, to_ms: int, every_ms: int = 1_000) -> None:
        """These members send heartbeats regularly, the last one at ``to_ms``."""
        for ms in range(from_ms, to_ms + 1, every_ms):
            self.at(ms)
            for client in clients:
                client.beat()

    def wall(self, ms: int) -> int:
        return WALL_START_MS + int(self.begin_ms) + ms

    def refused(
        self, member: str, ms: int, *, owned: dict[str, list[int]] | None = None, api: int = HEARTBEAT
    ) -> None:
        """Note a refused request of a removed member; a heartbeat may name the partitions it owns."""
        note = {"kind": "refused", "group": GROUP, "member": member, "at_ms": self.wall(ms)}
        said = {} if owned is None else {"owned": owned}
        self.notes.append(note | {"api": int(api), "error": int(ErrorCode.UNKNOWN_MEMBER_ID)} | said)

    def gap(self, member: str, ms: int, gap_ms: int) -> None:
        """Note the longest heartbeat gap of the minute that contains ``ms``."""
        at_ms = self.wall(ms)
        note = {"kind": "heartbeat_gap", "group": GROUP, "member": member, "gap_ms": float(gap_ms)}
        self.notes.append(note | {"minute_ms": at_ms - at_ms % 60_000, "at_ms": at_ms})

    def recorded(self, *, has_evidence: bool = False) -> Recorded:
        start = {"kind": "refused", "group": "another", "member": "", "at_ms": self.wall(0)}
        notes = [start, *self.notes] if has_evidence else None
        extractor = Extractor(GROUP, 0, notes)
        for index, at_ms, entry in entries_of(self.world):
            extractor.entry(index, at_ms, entry)
        extractor.passed(self.wall(int(self.world.now_ms - self.begin_ms)))
        return extractor.finish()


def handing_over(rebalance_ms: int = 60_000, slow_ms: int = 500) -> Story:
    """``a`` has orders 0-3; ``b`` joins at 10 s and is to have two of them. ``a`` is told at 11 s, gives up
    after ``slow_ms``, and ``b`` takes them at 18 s."""
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a", rebalance_ms=rebalance_ms), story.client("b")
    a.beat()
    story.at(5_000)
    a.beat()
    story.at(10_000)
    b.beat()
    story.at(11_000)
    a.beat()
    story.at(11_000 + slow_ms)
    a.beat()
    story.at(18_000)
    a.beat()
    b.beat()
    story.at(19_000)
    return story


def test_what_really_happened_is_measured_as_by_hand() -> None:
    script = handing_over().recorded()
    result = whatif(script, WhatIf())
    really = result.really
    assert really is not None
    assert result.is_faithful
    assert (really.epochs, really.moved) == (2, 2)
    assert really.revoking_ms == 2 * 500
    assert really.unowned_ms == 2 * (18_000 - 11_500)
    assert really.unstable_ms == 18_000 - 10_000
    assert (really.spread, really.spread_at_end) == (0, 0)


def test_a_shorter_rebalance_timeout_fences_who_took_longer_and_it_joins_again() -> None:
    script = handing_over(slow_ms=6_000).recorded()
    result = whatif(script, WhatIf(rebalance_timeout_ms=4_000))
    assert result.whatif is not None
    assert result.facts is not None
    assert result.whatif.fenced_revoking == 1
    first, *_ = (one for one in result.facts.sessions if one.member_id == "a")
    assert first.end is SessionEnd.REBALANCE_EXPIRED
    assert first.to_ms == handing_over().wall(11_000 + 4_000)
    again = [one for one in result.facts.sessions if one.member_id == "a"][1]
    assert again.from_ms == handing_over().wall(11_000 + 6_000), "when it had given up, it learned of it"
    assert result.whatif.epochs == 4, "a, b, a fenced, a again"


def test_a_longer_rebalance_timeout_than_it_took_changes_nothing() -> None:
    result = whatif(handing_over(slow_ms=6_000).recorded(), WhatIf(rebalance_timeout_ms=7_000))
    assert result.whatif == result.really


def fenced_while_giving_up(back_ms: int | None = None) -> Story:
    """``a`` is told at 2 s to give up two of orders 0-3 within 4 s, is heard of, and does not; it may join
    again. ``b`` beats until 20 s."""
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a", rebalance_ms=4_000), story.client("b")
    a.beat()
    story.at(1_000)
    b.beat()
    story.at(2_000)
    a.beat()  # told
    for ms in range(3_000, 6_000, 1_000):
        story.at(ms)
        a.beat(acknowledge=False)
    story.keep(b, from_ms=6_000, to_ms=20_000 if back_ms is None else back_ms - 1_000)
    if back_ms is not None:
        a.beat()  # is refused, and gives up everything
        story.keep(a, b, from_ms=back_ms, to_ms=20_000)
    return story


def test_a_fenced_member_is_kept_only_where_it_is_shown_to_have_revoked() -> None:
    story = fenced_while_giving_up()
    story.refused("a", 9_000, owned={})
    kept = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=8_000))
    assert kept.really is not None
    assert kept.whatif is not None
    assert (kept.really.fenced_revoking, kept.whatif.fenced_revoking) == (1, 0)
    assert kept.whatif.revoking_ms == 2 * 7_000
    too_short = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=6_000))
    assert too_short.whatif is not None
    assert too_short.whatif.fenced_revoking == 1
    assert too_short.whatif.revoking_ms == 2 * 6_000
    unknown = whatif(story.recorded(), WhatIf(rebalance_timeout_ms=8_000))
    assert unknown.whatif == unknown.really
    assert unknown.assumed is not None
    assert unknown.assumed.unknown_revocations == 1


@pytest.mark.parametrize("says", ["that it has it", "nothing", "a commit"])
def test_a_refused_request_that_is_no_acknowledgement_keeps_no_member(says: str) -> None:
    story = fenced_while_giving_up()
    topic_id = topic_id_text(FIRST_TOPIC)
    if says == "a commit":
        story.refused("a", 9_000, api=ApiKey.OFFSET_COMMIT)
    else:
        story.refused("a", 9_000, owned={topic_id: [0, 1, 2, 3]} if says == "that it has it" else None)
    result = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=8_000))
    assert result.whatif is not None
    assert result.whatif.fenced_revoking == 1
    assert result.whatif.revoking_ms == 2 * 8_000, "until its longer time was over"


def test_who_joined_again_in_time_had_given_up_by_then() -> None:
    story = fenced_while_giving_up(back_ms=10_000)
    story.refused("a", 7_000, owned={topic_id_text(FIRST_TOPIC): [0, 1, 2, 3]})
    result = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=10_000))
    assert result.whatif is not None
    assert result.whatif.fenced_revoking == 0
    assert result.whatif.revoking_ms == 2 * 8_000, "from 2 s until it joined at 10 s"


def test_silences_over_a_failover_are_not_the_rhythm_of_heartbeats() -> None:
    story = falling_silent()  # whose sessions last 10 s
    for ms, gap_ms in ((1_000, 500), (2_000, 510), (3_000, 30_000), (4_000, 29_000), (5_000, 28_000)):
        story.gap("a", ms, gap_ms)
    assert story.recorded(has_evidence=True).interval_ms == 505


def falling_silent() -> Story:
    """``b`` is heard last at 20 s and expires at 30 s; ``a`` beats every second until 60 s."""
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=20_000)
    story.keep(a, from_ms=21_000, to_ms=60_000)
    return story


def ended_ms(result: WhatIfResult, member_id: str = "b") -> list[int | None]:
    assert result.facts is not None
    return [one.to_ms for one in result.facts.sessions if one.member_id == member_id]


def test_a_shorter_session_timeout_ends_a_recorded_silence_sooner() -> None:
    story = falling_silent()
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=4_000))
    assert result.is_faithful
    assert ended_ms(result) == [story.wall(24_000)]
    assert not result.has_evidence


def test_a_longer_one_is_unknown_without_evidence_and_is_not_guessed() -> None:
    story = falling_silent()
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=15_000))
    assert ended_ms(result) == [story.wall(30_000)]
    assert result.assumed is not None
    assert result.assumed.unknown_sessions == 1


def test_a_longer_one_keeps_who_was_refused_in_time_and_no_other() -> None:
    story = falling_silent()
    story.refused("b", 33_000)
    assert ended_ms(whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=15_000))) == [None]
    assert ended_ms(whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=12_000))) == [
        story.wall(32_000)
    ]


def test_evidence_of_nothing_is_evidence_of_absence() -> None:
    story = falling_silent()
    result = whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=15_000))
    assert ended_ms(result) == [story.wall(35_000)]
    assert result.assumed is not None
    assert result.assumed.unknown_sessions == 0


def test_who_joined_again_in_time_would_have_stayed_and_not_joined_again() -> None:
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=20_000)
    story.keep(a, from_ms=21_000, to_ms=33_000)
    story.at(33_500)
    b.beat()  # refused: it is no member any more
    story.keep(a, b, from_ms=34_000, to_ms=40_000)
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=15_000))
    assert result.really is not None
    assert result.whatif is not None
    assert (result.really.epochs, result.whatif.epochs) == (4, 2)
    assert (result.really.sessions_expired, result.whatif.sessions_expired) == (1, 0)
    assert result.whatif.moved == result.really.moved - 4


def test_a_noted_gap_longer_than_the_session_timeout_would_have_ended_it() -> None:
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=200_000)
    story.gap("b", 100_000, 7_000)
    result = whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=5_000))
    assert result.really is not None
    assert result.whatif is not None
    assert result.assumed is not None
    assert result.assumed.gaps_placed == 1
    assert result.whatif.sessions_expired == 1
    assert result.whatif.epochs == result.really.epochs + 2, "it goes and joins again"
    (ended, again), minute = ended_ms(result), story.notes[0]["minute_ms"]
    assert ended is not None
    assert minute - 7_000 <= ended < minute + 60_000
    assert again is None
    assert whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=8_000)).whatif == result.really
    assert whatif(story.recorded(), WhatIf(session_timeout_ms=5_000)).whatif == result.really, "not known of"


def test_a_static_member_that_was_away_too_long_would_have_lost_its_place() -> None:
    story = Story()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b", instance="i")
    story.keep(a, b, from_ms=0, to_ms=10_000)
    b.leave(for_good=False)
    story.keep(a, from_ms=11_000, to_ms=17_000)
    b.member_id = "b2"
    b.beat()
    story.keep(a, b, from_ms=18_000, to_ms=25_000)
    kept = whatif(story.recorded(), WhatIf(session_timeout_ms=9_000))
    assert kept.whatif == kept.really
    lost = whatif(story.recorded(), WhatIf(session_timeout_ms=5_000))
    assert lost.really is not None
    assert lost.whatif is not None
    assert lost.whatif.sessions_expired == 1
    assert lost.whatif.epochs == lost.really.epochs + 2


def unequal() -> Story:
    """Three topics of one partition each, two members: range gives all to one of them."""
    story = Story()
    for name in ("orders", "events", "late"):
        story.world.create_topic(name, 1)
    a, b = story.client("a", "orders", "events", "late"), story.client("b", "orders", "events", "late")
    story.keep(a, from_ms=0, to_ms=3_000)
    story.keep(a, b, from_ms=4_000, to_ms=20_000)
    return story


def test_range_instead_of_uniform() -> None:
    result = whatif(unequal().recorded(), WhatIf(assignor=RangeAssignor()))
    assert result.assignor == "uniform"
    assert result.is_faithful
    assert result.really is not None
    assert result.whatif is not None
    assert (result.really.moved, result.really.spread) == (1, 1)
    assert (result.whatif.moved, result.whatif.spread) == (0, 3)
    assert result.whatif.unowned_ms == result.whatif.revoking_ms == 0


def test_the_assignor_that_a_log_does_not_name_is_found_by_what_it_did() -> None:
    story = Story(order=RANGE)
    story.world.create_topic("orders", 3)
    story.world.create_topic("events", 3)
    a, b = story.client("a", "orders", "events"), story.client("b", "orders", "events")
    story.keep(a, from_ms=0, to_ms=3_000)
    story.keep(a, b, from_ms=4_000, to_ms=20_000)
    result = whatif(story.recorded(), WhatIf(assignor=UniformAssignor()))
    assert result.assignor == "range"
    assert result.is_faithful


def test_a_longer_interval_makes_members_wait_longer_and_not_give_up_slower() -> None:
    script = handing_over().recorded()
    assert script.interval_ms == 1_000
    result = whatif(script, WhatIf(heartbeat_interval_ms=2_000))
    assert result.whatif is not None
    # a is told at 10 + 2 * 1 s, gives up 0.5 s later; b would take them 2 * 6.5 s after that: behind the end.
    assert result.whatif.revoking_ms == 2 * 500
    assert result.whatif.unowned_ms == 2 * (19_000 - 12_500)


# Assignors of others.


class Raises:
    name = "raises"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise ZeroDivisionError("oh dear")


class Ends:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        raise SystemExit(3)


class Nothing:
    def assign(self, spec: AssignmentSpec) -> None:
        return None


class Stranger:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment({"who": MemberAssignment({})})


class Twice:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment(
            {
                m: MemberAssignment(dict.fromkeys(one.subscribed_topics, (0,)))
                for m, one in spec.members.items()
            }
        )


class Beyond:
    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        return GroupAssignment(
            {
                m: MemberAssignment(dict.fromkeys(one.subscribed_topics, (99,)))
                for m, one in spec.members.items()
            }
        )


class Everything:
    """Assigns everything to the member with the lowest id."""

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        first = min(spec.members)
        topics = spec.members[first].subscribed_topics
        whole = {topic: tuple(range(spec.topics[topic].num_partitions)) for topic in topics}
        return GroupAssignment({first: MemberAssignment(whole)})


class Demanding:
    def __init__(self, what: str) -> None:
        raise PartitionAssignorError(what)


class NoAssignor:
    pass


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Raises", "oh dear"),
        ("Ends", "wanted to end the process"),
        ("Nothing", "returned NoneType instead of a GroupAssignment"),
        ("Stranger", "assigned partitions to who, which is not a member"),
        ("Twice", "to two members"),
        ("Beyond", "does not have"),
    ],
)
def test_an_assignor_that_fails_is_one_clear_error(name: str, says: str) -> None:
    assignor = assignor_named(f"{__name__}:{name}")
    with pytest.raises(WhatIfError, match=says):
        whatif(unequal().recorded(), WhatIf(assignor=assignor))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("best", "'best' is not an assignor: give uniform or range, or module:Class"),
        ("nowhere.at.all:X", "module nowhere.at.all cannot be imported: ModuleNotFoundError"),
        (f"{__name__}:Missing", "has no Missing"),
        (f"{__name__}:Demanding", "cannot be created without arguments"),
        (f"{__name__}:NoAssignor", "has no method assign"),
        (":X", "is not an assignor"),
    ],
)
def test_what_is_no_assignor_is_said(text: str, says: str) -> None:
    with pytest.raises(WhatIfError, match=says):
        assignor_named(text)


def test_an_assignor_of_ones_own() -> None:
    result = whatif(unequal().recorded(), WhatIf(assignor=assignor_named(f"{__name__}:Everything")))
    assert result.whatif is not None
    assert (result.whatif.moved, result.whatif.spread) == (0, 3)
    assert result.asked == (f"assignor {__name__}:Everything",)


# Bad settings, and groups that are left out.


@pytest.mark.parametrize(
    "asked",
    [
        {"session_timeout_ms": 999},
        {"session_timeout_ms": 1_800_001},
        {"rebalance_timeout_ms": 0},
        {"heartbeat_interval_ms": -5},
        {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000},
    ],
)
def test_settings_that_no_group_can_have_are_refused(asked: dict[str, int]) -> None:
    with pytest.raises(WhatIfError, match="ms"):
        WhatIf(**asked)  # type: ignore[arg-type]


def test_groups_without_recorded_membership_are_left_out_and_it_is_said_why() -> None:
    extractor = Extractor("old")
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=1_000,
        members=(),
    )
    record = encode_record(Record(GroupMetadataKey(group_id="old"), value))
    extractor.entry(1, 1_000, Entry(Cause(trigger=Trigger.IMPORTED), (record,)))
    assert whatif(extractor.finish(), WhatIf()).left_out == CLASSIC
    assert whatif(Extractor("offsets").finish(), WhatIf()).left_out == OFFSETS_ONLY
