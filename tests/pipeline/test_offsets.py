"""Offsets of a stream: its position, the limits of a batch, and its beginning."""

from __future__ import annotations

import json

import pytest

from quorate.spark.errors import InputError, OptionError
from quorate.spark.source.offsets import Offsets, admitted, entries_max, starting_at


def at(**shards: int) -> Offsets:
    return Offsets("test", {int(name[1:].replace("m", "-")): index for name, index in shards.items()})


def test_an_offset_survives_the_checkpoint() -> None:
    offsets = Offsets("test", {-1: 5, 0: 120})
    stored = json.loads(json.dumps(offsets.document()))
    assert stored == {"cluster_id": "test", "shards": {"-1": 5, "0": 120}}
    assert Offsets.read(stored, "test", {}) == offsets
    assert Offsets.read(stored, "test", {0: 1, 1: 1}).shards == {-1: 5, 0: 120, 1: 1}
    with pytest.raises(InputError, match="checkpoint belongs to cluster test, the log to other"):
        Offsets.read(stored, "other", {})


def test_what_is_new_between_two_offsets() -> None:
    assert at(s0=1, s1=7, s2=9).to(at(s0=4, s1=7, s2=8)) == {0: (1, 3)}


@pytest.mark.parametrize(
    ("entries", "ends"),
    [
        (None, {0: 101, 1: 11, 2: 1}),
        (30, {0: 21, 1: 11, 2: 1}),  # what shard 1 does not need goes to shard 0
        (6, {0: 4, 1: 4, 2: 1}),
        (1, {0: 2, 1: 1, 2: 1}),
        (1_000, {0: 101, 1: 11, 2: 1}),
    ],
)
def test_a_limit_is_shared_by_the_shards(entries: int | None, ends: dict[int, int]) -> None:
    got = admitted(at(s0=1, s1=1, s2=1), {0: 101, 1: 11, 2: 1}, entries)
    assert dict(got.shards) == ends or sum(got.shards.values()) - 3 == entries
    assert sum(got.shards.values()) - 3 <= (entries or 110)


@pytest.mark.parametrize("entries", [1, 2, 3, 7, 50])
def test_with_any_limit_every_entry_is_read_in_the_end(entries: int) -> None:
    latest = {-1: 3, 0: 101, 1: 40}
    offsets, batches = at(sm1=1, s0=1, s1=1), 0
    while (following := admitted(offsets, latest, entries)) != offsets:
        taken = sum(following.shards.values()) - sum(offsets.shards.values())
        assert 0 < taken <= entries
        offsets, batches = following, batches + 1
    assert dict(offsets.shards) == latest
    assert batches == -(-141 // entries)


def test_no_shard_goes_back() -> None:
    """The shards of a node that lags behind the one read before wait."""
    assert admitted(at(s0=50, s1=10), {0: 40, 1: 12}, None) == at(s0=50, s1=12)
    assert admitted(at(s0=50, s1=10), {1: 12}, 1) == at(s0=50, s1=11)


def test_where_a_stream_begins() -> None:
    begins, latest = {-1: 1, 0: 65}, {-1: 9, 0: 200}
    assert starting_at({}, begins, latest) == begins
    assert starting_at({"starting": "latest"}, begins, latest) == latest
    assert starting_at({"starting_index": "100"}, begins, latest) == {-1: 100, 0: 100}
    assert starting_at({"starting_index": '{"0": 100}'}, begins, latest) == {-1: 1, 0: 100}
    assert starting_at({"starting_index": '{"0": 100}', "starting": "latest"}, begins, latest) == {
        -1: 9,
        0: 100,
    }
    assert starting_at({"starting_index": "3"}, begins, latest) == {-1: 3, 0: 65}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"starting": "newest"}, "starting='newest' is unknown; there are earliest, latest"),
        ({"starting_index": "soon"}, "starting_index='soon' cannot be read"),
        ({"starting_index": "0"}, "indexes begin with 1"),
        (
            {"starting_index": "3", "starting": "latest"},
            "starting has no effect beside an index for all shards",
        ),
        ({"starting_index": '{"7": 3}'}, "there is no shard 7; there are metadata, shard-0"),
    ],
)
def test_a_beginning_that_makes_no_sense(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        starting_at(given, {-1: 1, 0: 1}, {-1: 1, 0: 1})
    assert said in str(refused.value)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
def test_a_limit_that_makes_no_sense(value: str) -> None:
    with pytest.raises(OptionError, match="is not a number above 0"):
        entries_max({"max_entries_per_trigger": value})
