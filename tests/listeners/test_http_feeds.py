"""Live feeds of groups: what a reader gets, that it goes on without loss, and that it cannot cost much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from cluster.http import feeds
from records import (
    ClassicMember,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Record,
    TermStartKey,
    TermStartValue,
    TermWhy,
)
from tests.listeners.http_rig import HttpRig, http_rig
from tests.support.waiting import until
from wire.embedded import ConsumerProtocolAssignment, TopicPartitionsByName, encode

GROUP = "web/é"
PATH = "/v1/groups/web%2F%C3%A9/events"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "GATHER_S", 0.001)
    monkeypatch.setattr(feeds, "VIEW_S", 0.001)


class Reader:
    """Reads events one by one."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self, *names: str) -> tuple[str, int | None, dict[str, Any]]:
        """Return the next event with one of these names: its name, id and data."""
        fields: dict[str, str] = {}
        while True:
            line = (await asyncio.wait_for(self.answer.content.readline(), 5)).decode()
            if not line:
                raise EOFError
            if line == "\n":
                if fields["event"] in names:
                    index = int(fields["id"]) if "id" in fields else None
                    return fields["event"], index, json.loads(fields["data"])
                fields = {}
            else:
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value

    async def indexes(self, number: int) -> list[int | None]:
        return [(await self.next("entry"))[1] for _ in range(number)]


@asynccontextmanager
async def reading(rig: HttpRig, query: str = "", **given: Any) -> AsyncIterator[Reader]:
    async with rig.session.get(rig.url + PATH + query, **given) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Reader(answer)


def joins(rig: HttpRig, member_id: str, size: int = 1) -> None:
    value = ConsumerGroupMemberMetadataValue(
        client_id="c" * size, client_host="/h", subscribed_topic_names=()
    )
    key = ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id=member_id)
    rig.node.shard_for(GROUP).append(Record(key, value))


async def test_a_reader_gets_past_and_future_of_its_group_without_offsets_and_other_groups() -> None:
    async with http_rig() as rig:
        shard = rig.node.shard_for(GROUP)
        rig.node.add_group(GROUP)
        rig.node.add_offset(GROUP, 7)
        other = next(f"o{n}" for n in range(99) if rig.node.shard_for(f"o{n}") is shard)
        rig.node.add_group(other)
        async with reading(rig) as reader:
            assert (await reader.next("start"))[2] == {
                "shard": shard.shard,
                "from_index": 1,
                "from_ms": 1_001,
            }
            assert (await reader.next("entry", "group"))[2]["group"]["group_id"] == GROUP
            name, index, data = await reader.next("entry", "group")
            assert (name, index, data["timestamp_ms"], data["left_out"]) == ("entry", 1, 1_001, 0)
            assert data["records"][0]["key"] == {"group_id": GROUP}
            joins(rig, "m")
            rig.node.add_offset(GROUP, 8)
            rig.node.add_group(other, 2)
            shard.append(
                Record(ConsumerGroupMetadataKey(group_id=other), ConsumerGroupMetadataValue(epoch=3)),
                Record(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=2)),
            )
            assert (await reader.next("entry"))[1] == 4
            _, index, data = await reader.next("entry")
            assert index == 7
            assert [record["value"]["epoch"] for record in data["records"]] == [2]
            # A new term concerns every group of the shard.
            term = TermStartValue(term=4, node_id=9, why=TermWhy.EXPIRY, incarnation="i", boot_id="b")
            shard.append(Record(TermStartKey(), term))
            _, index, data = await reader.next("entry")
            assert index == 8
            assert [(one["type"], one["value"]["node_id"]) for one in data["records"]] == [("TERM_START", 9)]


async def test_a_reader_that_comes_back_gets_every_entry_once_from_any_node() -> None:
    async with http_rig() as rig, http_rig() as second:
        for one in (rig, second):
            for number in range(3):
                one.node.add_group(GROUP, number)
        async with reading(rig) as reader:
            assert await reader.indexes(3) == [1, 2, 3]
        for one in (rig, second):
            joins(one, "m")
            joins(one, "n")
        async with reading(second, "?after=3") as reader:
            assert (await reader.next("start"))[2]["from_index"] == 4
            assert await reader.indexes(2) == [4, 5]
        headers = {"Last-Event-ID": "4"}  # of a browser that reconnects with the address it had
        async with reading(second, "?after=3", headers=headers) as reader:
            assert await reader.indexes(1) == [5]
        # This node is behind what the reader knows from another: it repeats nothing.
        async with reading(rig, "?after=6") as reader:
            await reader.next("start")
            joins(rig, "o")
            joins(rig, "p")
            assert await reader.indexes(1) == [7]


async def test_a_group_may_begin_and_end_while_it_is_watched() -> None:
    async with http_rig() as rig, reading(rig) as reader:
        assert (await reader.next("group"))[2]["group"] is None
        rig.node.add_group(GROUP)
        while (await reader.next("group"))[2]["group"] is None:
            pass


async def test_a_new_reader_gets_no_more_than_the_newest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "HISTORY_ENTRIES", 5)
    async with http_rig() as rig:
        for number in range(20):
            rig.node.add_group(GROUP, number)
        for query in ("", "?after=2"):  # and one that was away for too long is told so
            async with reading(rig, query) as reader:
                assert (await reader.next("start"))[2]["from_index"] == 16
                assert await reader.indexes(5) == [16, 17, 18, 19, 20]


async def test_readers_that_are_too_slow_are_cut_off_and_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "RECENT_BYTES", 100_000)
    async with http_rig() as rig:
        slow = [await asyncio.open_connection(*rig.listener.address, limit=1024) for _ in range(2)]
        for _, writer in slow:
            writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with reading(rig) as reader:
            await reader.next("start")
            for number in range(1, 121):  # 7 MB, more than sockets hold
                joins(rig, f"m{number}", 60_000)
                assert (await reader.next("entry"))[1] == number
            while await slow[0][0].read(100_000):  # this one reads on, and has lost what it did not take
                pass
            assert "reads too slowly" in caplog.text
            monkeypatch.setattr("cluster.http.file_server.UNREAD_S", 0.01)
            joins(rig, "n")
            assert (await reader.next("entry"))[1] == 121
        for _, writer in slow:
            writer.transport.abort()


async def test_many_that_come_at_once_get_the_past_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cluster.http.file_server.READERS_WAIT_S", 0.0)  # the bound of others that read files
    async with http_rig() as rig:
        for number in range(300):
            rig.node.add_group(GROUP, number)

        async def one() -> None:
            async with reading(rig) as reader:
                assert await reader.indexes(300) == [*range(1, 301)]

        await asyncio.gather(*(one() for _ in range(8)))


async def test_readers_share_the_work_have_a_bound_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_rig(http_waiting_max=3) as rig:
        rig.node.add_group(GROUP)
        seen: list[str] = []
        real = feeds.GroupFeeds._look

        async def counted(self: Any, shard: Any, group_id: str, group: Any) -> None:
            seen.append(group_id)
            await real(self, shard, group_id, group)

        monkeypatch.setattr(feeds.GroupFeeds, "_look", counted)
        async with reading(rig) as one, reading(rig) as two, reading(rig) as three:
            for reader in (one, two, three):
                await reader.next("group")
            assert seen == [GROUP]
            status, body = await rig.get(PATH)
            assert (status, body["error"]) == (429, "TOO_MANY_FEEDS")
        await until(lambda: not [one for one in asyncio.all_tasks() if "GroupFeeds" in repr(one)], 5)


async def test_a_view_comes_soon_without_an_entry_as_heartbeats_write_none() -> None:
    async with http_rig() as rig:
        rig.node.add_group(GROUP)
        async with reading(rig) as reader:
            await reader.next("group")
            assert (await reader.next("group", "alive"))[0] == "group"


async def test_a_large_entry_comes_without_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "ENTRY_BYTES", 70_000)
    async with http_rig() as rig, reading(rig) as reader:
        await reader.next("start")
        joins(rig, "m", 69_000)  # encoded in a thread
        joins(rig, "n", 80_000)
        assert len((await reader.next("entry"))[2]["records"]) == 1
        data = (await reader.next("entry"))[2]
        assert (data["records"], data["left_out"]) == ([], 1)


async def test_a_classic_member_comes_with_what_it_was_assigned() -> None:
    assigned = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartitionsByName(topic="orders", partitions=[2, 0])]
    )
    member = ClassicMember(
        rebalance_timeout_ms=9,
        session_timeout_ms=9,
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        subscription=b"",
        assignment=encode(assigned, 0),
    )
    group = GroupMetadataValue(
        generation=3,
        current_state_timestamp_ms=1,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        members=(member, replace(member, member_id="n", assignment=b"not one")),
    )
    async with http_rig() as rig, reading(rig) as reader:
        await reader.next("start")
        rig.node.shard_for(GROUP).append(Record(GroupMetadataKey(group_id=GROUP), group))
        value = (await reader.next("entry"))[2]["records"][0]["value"]
        assert [one["assigned"] for one in value["members"]] == [{"orders": [0, 2]}, {}]
        assert {"subscription", "assignment"}.isdisjoint(value["members"][0])


async def test_a_node_that_catches_up_refuses_and_one_that_is_damaged_ends_the_feed() -> None:
    async with http_rig() as rig:
        shard = rig.node.shard_for(GROUP)
        shard.is_readable = False
        assert (await rig.get(PATH))[0] == 503
        shard.is_readable = True
        async with reading(rig) as reader:
            await reader.next("start")
            shard.replica.first_index = 50
            shard.commit(60)
            with pytest.raises(EOFError):
                await reader.next("entry")
        async with rig.session.head(rig.url + PATH) as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_a_node_that_stops_does_not_wait_for_its_readers() -> None:
    async with http_rig() as rig, reading(rig) as reader:
        await reader.next("start")
        await asyncio.wait_for(rig.listener.stop(), 0.5)
        with pytest.raises(EOFError):
            await reader.next("entry")
