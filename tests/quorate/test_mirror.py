"""Mirroring another cluster's topics: the plan of a round, and its behaviour when either side is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.client import Client, Racks, TopicInfo, racks_of
from quorate.errors import CommandError, ExitCode
from quorate.mirror import Mirror, MirrorSource, MirrorState, SourceTopic, plan
from quorate.retrying_client import ClusterRefused
from wire.errors import ErrorCode


class There(MirrorSource):
    """The source cluster, as the test sets it."""

    def __init__(self) -> None:
        super().__init__(Client("127.0.0.1:1"), ".*")
        self.found: dict[str, SourceTopic] = {}
        self.away: str | None = None
        self.name = "source-1"

    def cluster_id(self) -> str:
        if self.away is not None:
            raise CommandError(self.away, code=ExitCode.UNREACHABLE)
        return self.name

    def topics(self) -> dict[str, SourceTopic]:
        return dict(self.found)


class Here(Client):
    """Our cluster in memory; it fails on request, before or after it has done what was asked."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.sizes: dict[str, int] = {}
        self.refuses: dict[str, str] = {}
        self.breaks_after: str | None = None
        self.racks: dict[str, Racks] = {}
        self.is_old = False

    def topics(self) -> list[TopicInfo]:
        return [TopicInfo(name, bytes(16), size) for name, size in sorted(self.sizes.items())]

    def create_topic(self, name: str, num_partitions: int) -> None:
        if name in self.refuses:
            raise CommandError(self.refuses[name], code=ExitCode.REFUSED)
        assert name not in self.sizes
        self.sizes[name] = num_partitions
        if self.breaks_after == name:
            raise SystemExit("killed")

    def grow_topic(self, name: str, num_partitions: int) -> None:
        assert num_partitions > self.sizes[name]
        self.sizes[name] = num_partitions

    def delete_topic(self, name: str) -> None:
        del self.sizes[name]
        self.racks.pop(name, None)

    def topic_racks(self, names: Iterable[str]) -> dict[str, Racks]:
        return {name: self.racks.get(name, ()) for name in sorted(names) if name in self.sizes}

    def set_topic_racks(self, name: str, racks: Racks) -> None:
        if self.is_old:
            raise ClusterRefused(
                ErrorCode.UNSUPPORTED_VERSION, "it needs format level 2", f"the racks of {name}"
            )
        assert len(racks) <= self.sizes[name]
        self.racks[name] = racks


class Pair:
    def __init__(self, directory: Path) -> None:
        self.there, self.here = There(), Here()
        self.lines: list[str] = []
        self.file = directory / "mirror.json"
        self.mirror = self.restarted()

    def restarted(self, **options: bool) -> Mirror:
        self.mirror = Mirror(self.there, self.here, self.file, self.lines.append, **options)
        return self.mirror

    def said(self) -> list[str]:
        lines, self.lines[:] = list(self.lines), []
        return lines


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_topics_come_grow_and_go_with_the_source(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 3), "events": SourceTopic("b", 1)}
    assert pair.mirror.round()
    assert pair.here.sizes == {"orders": 3, "events": 1}
    pair.there.found = {"orders": SourceTopic("a", 5)}
    assert not pair.mirror.round()
    assert pair.here.sizes == {"orders": 5, "events": 1}, "a topic has to be missing twice"
    assert pair.mirror.round()
    assert pair.here.sizes == {"orders": 5}
    assert pair.said() == [
        "created events with 1 partition",
        "created orders with 3 partitions",
        "grew orders to 5 partitions",
        "deleted events",
    ]


def test_a_topic_that_was_made_again_at_the_source_is_made_again_here(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 5)}
    pair.mirror.round()
    pair.there.found = {"orders": SourceTopic("b", 2)}
    pair.restarted().round()  # the ids outlive the process
    assert pair.here.sizes == {"orders": 2}


def test_topics_that_the_mirror_did_not_make_stay(pair: Pair) -> None:
    pair.here.sizes = {"ours": 4, "orders": 4}
    pair.there.found = {"orders": SourceTopic("a", 6)}
    pair.mirror.round()
    pair.there.found = {}
    pair.mirror.round()
    pair.mirror.round()
    assert pair.here.sizes == {"ours": 4, "orders": 6}


def test_partitions_never_become_fewer(pair: Pair) -> None:
    pair.here.sizes = {"orders": 9}
    pair.there.found = {"orders": SourceTopic("a", 6)}
    pair.mirror.round()
    pair.mirror.round()
    assert pair.here.sizes == {"orders": 9}
    assert pair.said() == ["orders has only 6 partitions at the source; partitions are never removed"]


def test_a_topic_that_was_made_and_not_answered_for_still_goes_later(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 3)}
    pair.here.breaks_after = "orders"
    with pytest.raises(SystemExit):
        pair.mirror.round()
    pair.here.breaks_after = None
    pair.there.found = {}
    pair.restarted()
    pair.mirror.round()
    pair.mirror.round()
    assert pair.here.sizes == {}


def test_a_side_that_is_away_is_reported_once_and_nothing_is_deleted_meanwhile(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 3)}
    pair.mirror.round()
    pair.there.away = "connection refused"
    for _ in range(3):
        assert not pair.mirror.round()
    assert pair.here.sizes == {"orders": 3}
    pair.there.away = None
    assert pair.mirror.round()
    assert pair.said()[1:] == [
        "the source does not respond: connection refused",
        "the source responds again",
    ]


def test_a_topic_that_is_refused_keeps_no_other_back(pair: Pair) -> None:
    pair.there.found = {name: SourceTopic(name, 1) for name in ("a", "b", "c")}
    pair.here.refuses = {"b": "creating topic 'b': POLICY_VIOLATION"}
    pair.mirror.round()
    pair.mirror.round()
    assert sorted(pair.here.sizes) == ["a", "c"]
    assert [line for line in pair.said() if "POLICY" in line] == [pair.here.refuses["b"]]
    with pytest.raises(CommandError, match="POLICY_VIOLATION") as refused:
        pair.mirror.once(0.0)
    assert refused.value.code == ExitCode.REFUSED
    pair.there.away = "no route"
    with pytest.raises(CommandError, match="the source does not respond: no route") as away:
        pair.mirror.once(0.0)
    assert away.value.code == ExitCode.UNREACHABLE


def test_another_source_is_refused(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 3)}
    pair.mirror.round()
    pair.there.name = "source-2"
    with pytest.raises(CommandError, match="belongs to a mirror of cluster source-1"):
        pair.mirror.round()
    assert pair.here.sizes == {"orders": 3}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", json.dumps({"format": 2}), json.dumps({"format": 1, "source": "a", "topics": [1]})],
)
def test_a_state_that_is_none_is_refused_and_kept(pair: Pair, text: str) -> None:
    pair.file.write_text(text)
    with pytest.raises(CommandError, match="cannot use the state"):
        pair.restarted()
    assert pair.file.read_text() == text


def test_without_deletions_what_is_gone_stays(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 3)}
    pair.restarted(deletes=False).round()
    pair.there.found = {}
    assert pair.mirror.round()
    assert pair.mirror.round()
    assert pair.here.sizes == {"orders": 3}


def test_racks_follow_the_replicas_at_the_source(pair: Pair) -> None:
    pair.there.found = {"orders": SourceTopic("a", 2, (("r1", "r2"), ("r2",))), "events": SourceTopic("b", 1)}
    assert pair.mirror.round()
    assert pair.here.racks == {"orders": (("r1", "r2"), ("r2",))}
    pair.there.found["orders"] = SourceTopic("a", 3, (("r3",), ("r2",), ("r1",)))
    assert pair.mirror.round()
    assert pair.here.racks == {"orders": (("r3",), ("r2",), ("r1",))}
    pair.there.found["orders"] = SourceTopic("c", 1, (("r1",),))
    assert pair.mirror.round()
    assert pair.here.racks == {"orders": (("r1",),)}
    pair.there.found["orders"] = SourceTopic("c", 1)
    assert pair.mirror.round()
    assert pair.here.racks == {"orders": ()}
    assert [line for line in pair.said() if "racks" in line] == ["copied the racks of orders"] * 4


def test_the_racks_of_a_partition_are_those_of_its_replicas_each_once() -> None:
    assert racks_of([("b", "a", "b"), (None,), ("c", None), (None,)]) == (("a", "b"), (), ("c",))
    assert racks_of([(None,), ()]) == ()


def test_the_source_gives_topics_that_are_not_internal_and_whose_whole_name_matches() -> None:
    class Source(Client):
        def topics(self) -> list[TopicInfo]:
            topic_id = bytes(7) + b"\1" + b"\xff" * 7 + b"\xfb"
            return [
                TopicInfo("orders-1", topic_id, 2, racks=(("r1",),)),
                TopicInfo("old-orders-1", topic_id, 2),
                TopicInfo("orders-2", topic_id, 2, is_internal=True),
            ]

    source = MirrorSource(Source("127.0.0.1:1"), "orders-.*")
    assert source.topics() == {"orders-1": SourceTopic("AAAAAAAAAAH/////////+w", 2, (("r1",),))}
    with pytest.raises(CommandError, match="not a regular expression"):
        MirrorSource(Source("127.0.0.1:1"), "(")


def test_a_cluster_that_cannot_hold_racks_yet_is_told_once_and_tried_again(pair: Pair) -> None:
    pair.here.is_old = True
    pair.there.found = {name: SourceTopic(name, 1, (("r",),)) for name in ("orders", "events")}
    assert not pair.mirror.round()
    assert not pair.mirror.round()
    assert [line for line in pair.said() if "racks" in line] == [
        "the racks of events: UNSUPPORTED_VERSION (35): it needs format level 2"
    ]
    with pytest.raises(CommandError, match="format level 2"):
        pair.mirror.once(0)
    pair.here.is_old = False
    assert pair.mirror.round()
    assert pair.here.racks == {"orders": (("r",),), "events": (("r",),)}


names = st.sampled_from(["a", "b", "c", "d"])
sources = st.dictionaries(names, st.builds(SourceTopic, st.sampled_from("xyz"), st.integers(1, 4)))


@settings(deadline=None)
@given(st.lists(sources, min_size=1, max_size=6), st.dictionaries(names, st.integers(1, 4)))
def test_two_rounds_after_the_last_change_both_sides_agree(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, SourceTopic]], ours: dict[str, int]
) -> None:
    pair = Pair(tmp_path_factory.mktemp("mirror"))
    pair.here.sizes = dict(ours)
    for found in changes:
        pair.there.found = found
        pair.mirror.round()
    pair.mirror.round()
    for name, topic in pair.there.found.items():
        made = MirrorState.load(pair.file).made
        if name in made:
            assert made[name] == topic.topic_id
        assert pair.here.sizes[name] >= topic.num_partitions
    assert set(pair.here.sizes) - set(pair.there.found) <= set(ours), "what the mirror made is gone"
    left = plan(
        pair.there.found, pair.here.sizes, MirrorState.load(pair.file).made, frozenset(), deletes=True
    )
    assert not any((left.create, left.grow, left.again, left.delete))


def test_it_says_that_it_looks_and_when_both_sides_agree(pair: Pair) -> None:
    rounds = iter((False, False, True))

    class Ending(threading.Event):
        """Ends the run after three rounds."""

        def wait(self, timeout: float | None = None) -> bool:
            if next(rounds):
                self.set()
            return True

    pair.there.found = {"orders": SourceTopic("a", 3)}
    pair.mirror.run(5.0, Ending())
    assert pair.said() == [
        "looking at the source every 5 s, until Ctrl-C",
        "created orders with 3 partitions",
        "all of the source's topics are here: 1 topic",
    ]
    pair.mirror.once(0.0)
    assert pair.said() == ["all of the source's topics are here: 1 topic"]
