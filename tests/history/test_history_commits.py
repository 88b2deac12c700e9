"""The proof that an acknowledged commit is in the log."""

from __future__ import annotations

from history.checking.commits import Commit, commits, missing_commits
from records import Cause, Record, Trigger
from tests.support.memory_log import GROUP, NOON_MS, Writer, commit

from .conftest import Serve

COMMITTED = Cause(trigger=Trigger.OFFSETS_COMMITTED)


def two_shards() -> tuple[Writer, Writer]:
    one, two = Writer(), Writer()
    one.append(COMMITTED, commit(0, 10), commit(1, 20))
    one.after(5).append(COMMITTED, commit(0, 11))
    one.after(5).append(COMMITTED, Record(commit(0, 0).key, None))
    two.append(COMMITTED, commit(0, 7, group="other"))
    return one, two


def test_every_commit_of_a_key_in_order(serve: Serve) -> None:
    one, two = two_shards()
    serve({0: one.log, 1: two.log})
    found = commits("node-1")
    assert found[GROUP, "orders", 0] == [
        Commit(10, 1, NOON_MS),
        Commit(11, 2, NOON_MS + 5),
        Commit(-1, 3, NOON_MS + 10),
    ]
    assert found["other", "orders", 0] == [Commit(7, 1, NOON_MS)]
    assert set(commits("node-1", groups=["other"])) == {("other", "orders", 0)}


def test_what_was_acknowledged_and_is_not_there_is_named(serve: Serve) -> None:
    one, two = two_shards()
    serve({0: one.log, 1: two.log})
    there = [((GROUP, "orders", 0), 10), ((GROUP, "orders", 0), 11), (("other", "orders", 0), 7)]
    lost = [((GROUP, "orders", 1), 21), (("nobody", "orders", 0), 1)]
    assert missing_commits("node-1", there) == []
    assert missing_commits("node-1", [*there, *lost]) == lost


def test_an_undecided_commit_is_no_proof(serve: Serve) -> None:
    log = Writer()
    log.append(COMMITTED, commit(0, 10))
    log.append(COMMITTED, commit(0, 11), decided=False)
    serve({0: log.log})
    assert missing_commits("node-1", [((GROUP, "orders", 0), 11)]) == [((GROUP, "orders", 0), 11)]


def test_commits_behind_damage_still_count(serve: Serve) -> None:
    log, _ = two_shards()
    log.log.broken.add(2)
    serve({0: log.log})
    assert [c.index for c in commits("node-1")[GROUP, "orders", 0]] == [1, 3]
