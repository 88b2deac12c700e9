"""`quorate.Consumer` in one group with other clients, and with others of its own kind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.apache import java_command, java_is_missing
from quorate import Consumer, FatalError, FencedError, SyncConsumer, TopicPartition
from tests.clients.consumer.reading import WITHIN_S, part, polls_until, produce, read
from tests.support.python_clients import ConfluentMemberOfConsumerGroup, PolledMember
from tests.support.verifiable import VerifiableConsumer

VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"


async def reads_until(consumer: Consumer, numbers: list[int], holds: Callable[[], bool]) -> None:
    """Poll and commit until a condition holds; note the numbers of the messages."""
    until_s = time.monotonic() + 2 * WITHIN_S
    while not holds():
        assert time.monotonic() < until_s, f"{numbers} {consumer.explain()}"
        if records := await consumer.poll(0.1):
            numbers += [int(record.value) for record in records]
            await consumer.commit()


async def test_a_group_is_shared_with_confluent_kafka(
    server: str, topic: str, group: str, consumer: Callable[..., Consumer]
) -> None:
    """Each goes on where the other committed, also when one of them leaves."""
    produce(server, topic, 10)
    numbers: list[int] = []
    async with consumer(enable_auto_commit=False) as ours:
        await reads_until(ours, numbers, lambda: len(numbers) == 10)
        other: PolledMember = ConfluentMemberOfConsumerGroup(server, group, topic, "other")
        try:
            await reads_until(ours, numbers, lambda: len(other.assigned) == len(ours.assignment()) == 1)
            produce(server, topic, 10, first=10)
            await reads_until(ours, numbers, lambda: len(numbers) + len(other.values) == 20)
            assert len(other.values) == 5
            other.end()
            await reads_until(ours, numbers, lambda: len(ours.assignment()) == 2)
        finally:
            other.close()
        produce(server, topic, 10, first=20)
        await reads_until(ours, numbers, lambda: len(numbers) == 25)
    assert sorted([*numbers, *map(int, other.values)]) == list(range(30)), "each message was read once"
    assert not other.errors
    assert not other.lost


@pytest.mark.java
async def test_a_group_is_shared_with_javas_consumer(
    server: str, topic: str, group: str, consumer: Callable[..., Consumer]
) -> None:
    if reason := java_is_missing():
        pytest.skip(reason)
    produce(server, topic, 10)
    numbers: list[int] = []
    command = java_command(
        VERIFIABLE, "--bootstrap-server", server, "--topic", topic, "--group-id", group,
        "--group-protocol", "consumer", "--verbose",
    )  # fmt: skip
    async with consumer(enable_auto_commit=False) as ours:
        await reads_until(ours, numbers, lambda: len(numbers) == 10)
        with VerifiableConsumer(command) as java:
            await reads_until(ours, numbers, lambda: len(java.assigned) == len(ours.assignment()) == 1)
            produce(server, topic, 10, first=10)
            await reads_until(ours, numbers, lambda: len(numbers) + len(java.values) == 20)
            assert len(java.values) == 5
            await reads_until(ours, numbers, lambda: 10 in java.committed.values())
            java.stop()
            assert not java.commit_errors, java.report()
        await reads_until(ours, numbers, lambda: len(ours.assignment()) == 2)
        produce(server, topic, 10, first=20)
        await reads_until(ours, numbers, lambda: len(numbers) == 25)
    assert sorted([*numbers, *map(int, java.values)]) == list(range(30)), "each message was read once"


async def test_others_do_not_notice_the_restart_of_a_static_member(consumer: Callable[..., Consumer]) -> None:
    told: list[str] = []
    callbacks = {kind: lambda *_, kind=kind: told.append(kind) for kind in ("on_assign", "on_revoke")}
    async with consumer(**callbacks) as other:
        web = consumer(group_instance_id="web-1")
        await web.poll(0)
        for _ in range(2):
            until_s = time.monotonic() + WITHIN_S
            while not len(web.assignment()) == len(other.assignment()) == 1:
                assert time.monotonic() < until_s, f"{web.explain()} {other.explain()}"
                await web.poll(0.1)
                await other.poll(0.1)
            mine, told[:] = web.assignment(), []
            await web.close()
            web = consumer(group_instance_id="web-1")
            await web.poll(0)
        await polls_until(web, lambda: bool(web.assignment()))
        assert web.assignment() == mine
        await other.poll(0.2)
        assert told == []
        await web.close()


async def test_a_second_static_member_of_the_same_name_is_refused(consumer: Callable[..., Consumer]) -> None:
    async with consumer(group_instance_id="web-1") as first:
        await polls_until(first, lambda: len(first.assignment()) == 2)
        async with consumer(group_instance_id="web-1") as second:
            for _ in range(2):
                with pytest.raises(FatalError, match="UNRELEASED_INSTANCE_ID"):
                    await polls_until(second, lambda: False)
        await first.poll(0.1)
        assert len(first.assignment()) == 2


async def test_an_assignor_that_the_coordinator_does_not_have_is_fatal(
    consumer: Callable[..., Consumer],
) -> None:
    async with consumer(group_remote_assignor="range") as member:
        await polls_until(member, lambda: len(member.assignment()) == 2)
    async with consumer(group_remote_assignor="unheard-of") as member:
        with pytest.raises(FatalError, match="UNSUPPORTED_ASSIGNOR"):
            await polls_until(member, lambda: False)


async def test_a_consumer_outside_of_a_group_with_members_cannot_commit_for_it(
    server: str, topic: str, group: str, consumer: Callable[..., Consumer]
) -> None:
    settings = {"bootstrap_servers": server, "group_id": group}
    async with Consumer(**settings) as outside:
        await outside.assign({part(topic, 0): 0})
        assert (await outside.commit({part(topic, 0): 5}))[part(topic, 0)].offset == 5
        async with consumer() as member:
            await polls_until(member, lambda: len(member.assignment()) == 2)
            with pytest.raises(FencedError):
                await outside.commit({part(topic, 0): 7})
            found = await member.committed([part(topic, 0)])
    assert found[part(topic, 0)] is not None
    assert found[part(topic, 0)].offset == 5


async def test_what_on_revoke_commits_the_next_owner_begins_with(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    produce(server, topic, 20)
    offsets: dict[TopicPartition, int] = {}

    async def commit_four(member: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            offsets[each] = await member.position(each)
        await member.commit(dict.fromkeys(partitions, 4))

    async with consumer(enable_auto_commit=False, on_revoke=commit_four) as first:
        await read(first, 20)
    assert list(offsets.values()) == [10, 10]
    async with consumer() as second:
        assert sorted(await read(second, 12)) == list(range(8, 20))


async def test_partitions_and_topics_that_come_later_are_found(
    server: str, topic: str, consumer: Callable[..., Consumer]
) -> None:
    admin = AdminClient({"bootstrap.servers": server})
    later = f"{topic}-later"
    async with consumer(metadata_max_age_ms=500, allow_auto_create_topics=False) as reader:
        await reader.subscribe([topic, later])
        await polls_until(reader, lambda: len(reader.assignment()) == 2)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WITHIN_S)
        admin.create_topics([NewTopic(later, 1)])[later].result(WITHIN_S)
        await polls_until(reader, lambda: len(reader.assignment()) == 4)
        produce(server, later, 1, partition=0)
        produce(server, topic, 1, first=1, partition=2)
        assert sorted(await read(reader, 2)) == [0, 1]


@pytest.mark.parametrize("flavour", [SyncConsumer, confluent_kafka.Consumer])
def test_the_flavour_for_threads_calls_back_as_confluent_kafka_does(
    server: str, topic: str, group: str, flavour: type[Any]
) -> None:
    told: list[tuple[str, list[int], threading.Thread]] = []

    def note(kind: str) -> Callable[[Any, list[Any]], None]:
        return lambda _, partitions: told.append(
            (kind, sorted(each.partition for each in partitions), threading.current_thread())
        )

    settings = {"bootstrap.servers": server, "group.id": group, "group.protocol": "consumer"}
    first, second = flavour(settings), flavour(settings)
    until_s = time.monotonic() + 2 * WITHIN_S

    def poll_until(holds: Callable[[], bool], *consumers: Any) -> None:
        while not holds():
            assert time.monotonic() < until_s, told
            for each in consumers:
                each.poll(0.05)

    try:
        first.subscribe([topic], **{f"on_{kind}": note(kind) for kind in ("assign", "revoke", "lost")})
        poll_until(lambda: len(first.assignment()) == 2, first)
        second.subscribe([topic])
        poll_until(lambda: len(told) == 3 and len(second.assignment()) == 1, first, second)
        moved = [each.partition for each in second.assignment()]
        second.close()
        poll_until(lambda: len(first.assignment()) == 2, first)
    finally:
        first.close()
    here = threading.current_thread()
    assert told == [
        ("assign", [0, 1], here),
        ("revoke", moved, here),
        ("assign", [], here),
        ("assign", moved, here),
        ("revoke", [0, 1], here),
    ]
