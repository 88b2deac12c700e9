"""`whatif`: a replay under the recorded settings equals the record."""

from __future__ import annotations

from typing import Final

import pytest

from history.whatif.answer import whatif
from history.whatif.extract import Extractor
from history.whatif.recorded import Recorded
from history.whatif.replay import GroupReplay
from history.whatif.settings import WhatIf
from records import (
    Entry,
    ReasonKind,
    RecordType,
    Trigger,
    compact,
)
from tests.support.world import WALL_START_MS

from .members import GROUP, History
from .whatif_story import RANGE, UNIFORM

OF_THE_CATALOG = {RecordType.CONSUMER_GROUP_PARTITION_METADATA, RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION}
"""Their values name a version of the catalog, and a replay knows the group's own topics only."""

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


SEEDS: Final = (*range(7), 51)
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


@pytest.mark.parametrize("seed", range(1, 5))
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
