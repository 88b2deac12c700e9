"""The catalog that every node keeps of the metadata shard: what follows from its changes, and who waits."""

from __future__ import annotations

import pytest

from cluster.runtime.answers import Unavailable
from cluster.runtime.committed_catalog import CommittedCatalog
from cluster.runtime.shard_state import ShardState
from coordinator.leadership import NOTHING_ASKED
from records import METADATA_SHARD, LeadershipValue
from tests.cluster.fakes import Bench, records_of
from tests.cluster.led_node import create, delete, spread_everywhere
from wire.apis import ApiKey
from wire.errors import ErrorCode


def test_a_shard_waits_for_the_catalog_that_its_groups_were_decided_on(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bench(monkeypatch)
    metadata, replica = other.log(other.metadata), other.log(other.groups)
    replica.follow(2)
    replica.receive(*led.log(led.groups).bodies)
    metadata.follow(2)
    replica.lead()
    assert other.groups.state is ShardState.CATCH_UP
    metadata.receive(*led.log(led.metadata).bodies)
    assert other.groups.state is ShardState.READY


def test_followers_learn_topics_in_order_and_groups_of_the_leader_here_are_told(
    led: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bench(monkeypatch)
    metadata = other.log(other.metadata)
    metadata.follow(2)
    metadata.receive(*led.log(led.metadata).bodies)
    assert other.catalog_changes == [(["orders"], True)]
    assert other.catalog.topic("orders") is not None


def test_what_came_and_went_in_one_commit_is_told_apart(led: Bench) -> None:
    led.catalog_changes.clear()
    led.ask(create("brief"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    led.ask(delete("brief"), ApiKey.DELETE_TOPICS, 6, shard=METADATA_SHARD)
    led.ask(create("other"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    led.log(led.metadata).commit()
    assert led.catalog_changes == [(["brief"], True), (["brief", "other"], True)]


def test_a_rebuilt_catalog_takes_over_when_it_is_as_new_and_never_goes_back(led: Bench) -> None:
    metadata = led.log(led.metadata)
    led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    led.ask(create("lost"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bodies = metadata.bodies[:2]
    metadata.lose()
    led.catalog_changes.clear()
    metadata.machine.reset()
    metadata.bodies = []
    sizes = []
    for body in bodies:
        metadata.receive(body)
        sizes.append(len(led.catalog))
    assert sizes == [2, 2]
    assert led.catalog.topic("lost") is None
    assert led.catalog_changes == [([], False)]


def test_an_installed_snapshot_tells_what_differs_and_that_more_may_have_come_and_gone(led: Bench) -> None:
    metadata = led.log(led.metadata)
    metadata.lose()
    led.catalog_changes.clear()
    led.metadata.catalog_version()
    other = records_of(metadata.bodies[0].replace(b"orders", b"others"))
    metadata.install(other, 9)
    assert led.catalog.version == 9
    assert led.catalog_changes == [(["orders", "others"], False)]


def test_an_admin_reply_waits_until_every_node_in_contact_has_the_change(led: Bench) -> None:
    metadata = led.log(led.metadata)
    answers = led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    assert (answers, metadata.everywhere[0][0]) == ([], 2)
    spread_everywhere(led)
    assert [answer.topics[0].error_code for answer in answers] == [0]


def test_an_admin_reply_that_only_waits_for_others_is_given_when_the_lead_is_lost(led: Bench) -> None:
    metadata = led.log(led.metadata)
    done = led.ask(create("payments"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.commit()
    unknown = led.ask(create("refunds"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    metadata.lose()
    assert [answer.topics[0].error_code for answer in done] == [0]
    assert [answer.topics[0].error_code for answer in unknown] == [ErrorCode.REQUEST_TIMED_OUT]
    spread_everywhere(led)
    assert len(done) == len(unknown) == 1


def test_nodes_follow_a_request_for_leadership_once_it_is_committed_and_after_a_restart(led: Bench) -> None:
    """A request in the log is followed as soon as it is read, before a leader is known."""
    metadata, told = led.log(led.metadata), []
    asked = LeadershipValue(drained=(3,), asked=())
    led.metadata.duties.ask_leadership(asked, "node 3 is drained", told.append)
    assert led.leaderships == []
    metadata.commit()
    assert (led.leaderships, told) == ([asked], [])
    spread_everywhere(led)
    led.metadata.duties.ask_leadership(asked, "node 3 is drained", told.append)
    assert told == [None, None], "asking again writes nothing"
    metadata.lose()
    led.metadata.duties.ask_leadership(NOTHING_ASKED, "", told.append)
    assert told[2:] == [Unavailable.NOT_LEADER.value]
    records = [record for body in metadata.bodies for record in records_of(body)]
    restarted = CommittedCatalog(led.metadata)
    restarted.restored(records, 9)
    assert led.leaderships == [asked, asked]


def test_the_format_level_is_raised_by_a_record_that_all_nodes_have(led: Bench) -> None:
    metadata, told = led.log(led.metadata), []
    assert led.metadata.duties.committed.format_level == 1
    led.metadata.duties.raise_format_level(2, told.append)
    assert led.metadata.duties.committed.format_level == 1, "nothing is committed yet"
    metadata.commit()
    assert told == []
    spread_everywhere(led)
    assert (told, led.metadata.duties.committed.format_level) == ([None], 2)
    metadata.lose()
    bodies = list(metadata.bodies)
    metadata.machine.reset()
    assert led.metadata.duties.committed.format_level == 2, "also while the projection is built again"
    metadata.bodies = []
    metadata.receive(*bodies)
    assert led.metadata.duties.committed.format_level == 2
    led.metadata.duties.raise_format_level(3, told.append)
    assert told[1:] == [Unavailable.NOT_LEADER.value]
