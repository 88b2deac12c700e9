"""The HTTP API: its answers, its refusals, its timeouts, and its OpenAPI document."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
import struct
import threading
from typing import Any

import msgpack
import pytest
from crc32c import crc32c

from cluster.group_settings import CommittedSettings
from cluster.http import file_server
from cluster.http.routes import ROUTES
from cluster.http.schemas import MEMBER
from cluster.settings import Settings
from raftlog.env.errors import Damaged
from raftlog.storage.evidence import Refusal
from raftlog.storage.frames import Frame, frames_in
from records import (
    LEADERSHIP_SINCE,
    Cause,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    Trigger,
    decode_entry,
    encode_entry,
)
from tests.listeners.http_rig import HttpRig, can_lead, http_rig
from tests.support.group_client import Client
from tests.support.waiting import until
from tests.support.world import World


async def filled(rig: HttpRig) -> None:
    rig.node.add_topic("orders", 12)
    rig.node.add_group("billing", 4)
    rig.node.add_group("search", 1)
    rig.node.add_offset("simple", 77)


async def test_health_is_about_the_process_and_readiness_about_the_shards() -> None:
    async with http_rig() as rig:
        assert await rig.get("/healthz") == (200, {"status": "ok"})
        assert await rig.get("/readyz") == (200, {"ready": True, "reasons": []})
        rig.node.is_level_awaited = True
        new = "the cluster is new and waits for its format level, which needs all nodes"
        assert await rig.get("/readyz") == (503, {"ready": False, "reasons": [new]})
        rig.node.is_level_awaited = False
        rig.node.shards[1].is_ready = False
        rig.node.metadata.is_ready = False
        assert await rig.get("/healthz") == (200, {"status": "ok"})
        reasons = ["metadata is CatchUp", "shard 1 is CatchUp"]
        assert await rig.get("/readyz") == (503, {"ready": False, "reasons": reasons})


async def test_cluster_names_every_nodes_addresses_and_this_nodes_shards() -> None:
    async with http_rig() as rig:
        await filled(rig)
        status, answer = await rig.get("/v1/cluster")
        assert status == 200
        assert (answer["cluster_id"], answer["node_id"]) == ("test-cluster", 7)
        assert answer["nodes"][0]["kafka"] == {"host": "kafka.example", "port": 19092}
        assert answer["nodes"][0]["http"] == {"host": "h", "port": 8}
        assert [node["node_id"] for node in answer["nodes"]] == [7, 8, 9]
        assert [shard["shard"] for shard in answer["shards"]] == [-1, 0, 1]
        assert answer["shards"][0]["log"]["commit_index"] == 1


async def test_topics_groups_and_one_group() -> None:
    async with http_rig() as rig:
        await filled(rig)
        status, answer = await rig.get("/v1/topics")
        assert (status, answer["as_of_index"]) == (200, 1)
        assert [(topic["name"], topic["num_partitions"]) for topic in answer["topics"]] == [("orders", 12)]
        status, answer = await rig.get("/v1/groups")
        assert [(group["group_id"], group["epoch"]) for group in answer["groups"]] == [
            ("billing", 4),
            ("search", 1),
            ("simple", 0),
        ]
        status, answer = await rig.get("/v1/groups/billing")
        assert (status, answer["group"]["epoch"], answer["group"]["members"]) == (200, 4, [])
        assert answer["as_of_index"] == rig.node.shard_for("billing").commit_index
        status, answer = await rig.get("/v1/groups/nobody")
        assert (status, answer["error"]) == (404, "GROUP_ID_NOT_FOUND")


async def test_the_configs_of_a_group_say_what_holds_and_why() -> None:
    """A group without a value has the leader's; a set value is shown beside the bounded one."""
    async with http_rig() as rig:
        settings = CommittedSettings(Settings().group_settings(), lambda: rig.node.catalog)
        settings.set_interval(500)
        rig.node.group_settings = settings

        async def shown() -> dict[str, tuple[int, str, int | None, int, int]]:
            status, answer = await rig.get("/v1/groups/none%2Fyet/configs")
            assert (status, answer["group_id"]) == (200, "none/yet")
            return {
                row["name"].removeprefix("consumer."): (
                    row["value"], row["origin"], row["set_to"], row["low"], row["high"],
                )
                for row in answer["configs"]
            }  # fmt: skip

        assert await shown() == {
            "session.timeout.ms": (45_000, "broker", 45_000, 1_000, 1_800_000),
            "heartbeat.interval.ms": (500, "adaptive", None, 500, 15_000),
            "assignment.interval.ms": (0, "broker", 0, 0, 15_000),
        }
        rig.node.catalog.configs.put("none/yet", "consumer.heartbeat.interval.ms", "20000")
        rig.node.catalog.configs.put("none/yet", "consumer.session.timeout.ms", "6000")
        settings.forget(["none/yet"])
        found = await shown()
        assert found["session.timeout.ms"][:3] == (6_000, "group", 6_000)
        assert found["heartbeat.interval.ms"][:3] == (2_000, "group", 20_000), "within bounds and session"
    async with http_rig(group_consumer_heartbeat_interval_adaptive=False) as rig:
        _, answer = await rig.get("/v1/groups/g/configs")
    assert {row["origin"] for row in answer["configs"]} == {"broker"}


async def test_group_ids_may_hold_anything_that_a_path_can_spell() -> None:
    async with http_rig() as rig:
        for group_id, path in (("a/b", "a%2Fb"), ("ü?&=#", "%C3%BC%3F%26%3D%23"), ("..", "%2E%2E")):
            rig.node.add_group(group_id)
            if group_id == "..":
                continue  # clients and servers resolve it out of the path; /v1/groups lists it
            status, answer = await rig.get(f"/v1/groups/{path}")
            assert (status, answer["group"]["group_id"]) == (200, group_id)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 1000])
async def test_pages_of_groups_add_up(limit: int) -> None:
    async with http_rig() as rig:
        for number in range(7):
            rig.node.add_group(f"g{number}")
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            _, answer = await rig.get(f"/v1/groups?limit={limit}&after={after}")
            assert len(answer["groups"]) <= limit
            found += [group["group_id"] for group in answer["groups"]]
            after = answer["next_after"]
        assert found == [f"g{number}" for number in range(7)]


@pytest.mark.parametrize("path", ["/v1/groups/late", "/v1/groups"])
async def test_what_is_not_committed_is_not_shown_until_it_is(path: str) -> None:
    async with http_rig() as rig:
        rig.node.add_group("late", committed=False)
        shard = rig.node.shard_for("late")
        asked = asyncio.ensure_future(rig.get(path))
        while not shard.waiters:
            await asyncio.sleep(0)
        assert not asked.done()
        shard.commit(1)
        assert (await asked)[0] == 200


async def test_what_never_becomes_committed_is_503() -> None:
    async with http_rig(held_reply_timeout_ms=100) as rig:
        rig.node.add_group("late", committed=False)
        status, answer = await rig.get("/v1/groups/late")
        assert (status, answer["error"]) == (503, "NOT_COMMITTED")
        assert "index 1" in answer["message"]


@pytest.mark.parametrize("path", ["/v1/groups", "/v1/groups/x", "/v1/topics"])
async def test_what_is_not_loaded_is_503_and_not_empty(path: str) -> None:
    async with http_rig() as rig:
        for shard in (rig.node.metadata, *rig.node.shards):
            shard.is_ready = shard.is_readable = False
        status, answer = await rig.get(path)
        assert (status, answer["error"]) == (503, "NOT_READY")
        assert "CatchUp" in answer["message"]


# The log


async def lines(rig: HttpRig, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await rig.text(path)).splitlines()]


async def test_the_log_as_json_lines() -> None:
    async with http_rig() as rig:
        for number in range(5):
            rig.node.add_topic(f"t{number}", 1)
        found = await lines(rig, "/v1/shards/metadata/log?from=2&limit=3")
        assert [entry["index"] for entry in found] == [2, 3, 4]
        assert {entry["term"] for entry in found} == {3}
        assert "t1" in json.dumps(found[0]["entry"])
        assert [entry["index"] for entry in await lines(rig, "/v1/shards/metadata/log")] == [1, 2, 3, 4, 5]
        assert await lines(rig, "/v1/shards/metadata/log?from=6") == []
        assert await lines(rig, "/v1/shards/0/log") == []


async def test_the_log_as_msgpack_is_the_bodies_as_they_are() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)
        async with rig.session.get(rig.url + "/v1/shards/metadata/log?format=msgpack") as answer:
            assert answer.content_type == "application/x-msgpack"
            assert answer.headers["Quorate-Commit-Index"] == "1"
            unpacker = msgpack.Unpacker()
            unpacker.feed(await answer.read())
        ((index, term, timestamp_ms, body),) = list(unpacker)
        assert (index, term, timestamp_ms) == (1, 3, 1_001)
        assert body == rig.node.metadata.replica.bodies[0]
        assert len(decode_entry(body).records) == 1


async def test_a_long_poll_ends_with_the_entry_or_with_its_time() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)
        metadata = rig.node.metadata
        polled = asyncio.ensure_future(lines(rig, "/v1/shards/metadata/log?from=2&wait_ms=20000"))
        while not metadata.waiters:
            await asyncio.sleep(0)
        rig.node.add_topic("clicks", 1)
        assert [entry["index"] for entry in await polled] == [2]
        assert await lines(rig, "/v1/shards/metadata/log?from=9&wait_ms=50") == []
        assert metadata.waiters[-1].fn() is None  # cancelled: no callback is left


async def test_long_polls_are_bounded_and_do_not_count_as_work() -> None:
    async with http_rig(http_waiting_max=2, http_requests_max=1) as rig:
        polls = [asyncio.ensure_future(lines(rig, "/v1/shards/0/log?from=5&wait_ms=20000")) for _ in range(2)]
        while len(rig.node.shards[0].waiters) < 2:
            await asyncio.sleep(0)
        status, answer = await rig.get("/v1/shards/0/log?from=5&wait_ms=20000")
        assert (status, answer["error"]) == (429, "TOO_MANY_POLLS")
        assert (await rig.get("/healthz"))[0] == 200
        rig.node.shards[0].commit(5)
        await asyncio.gather(*polls)


async def test_a_client_that_leaves_its_poll_frees_its_place() -> None:
    async with http_rig(http_waiting_max=1) as rig:
        shard = rig.node.shards[0]
        poll = asyncio.ensure_future(lines(rig, "/v1/shards/0/log?from=5&wait_ms=20000"))
        while not shard.waiters:
            await asyncio.sleep(0)
        poll.cancel()
        status = 429
        for _ in range(200):
            status = await rig.status("/v1/shards/0/log?from=5&wait_ms=1")
            if status == 200:
                break
        assert status == 200


@pytest.mark.parametrize("snapshot_index", [0, 3, 100])
async def test_archived_and_large_entries_read_the_same(snapshot_index: int) -> None:
    async with http_rig() as rig:
        rig.node.add_group("g", 1)
        shard = rig.node.shard_for("g")
        shard.replica.log.live_from = snapshot_index + 1
        many = [
            Record(
                OffsetCommitKey(group_id="g", topic="orders", partition=partition),
                OffsetCommitValue(offset=partition, commit_timestamp_ms=1),
            )
            for partition in range(2_000)
        ]
        shard.append(*many)
        first, large = await lines(rig, f"/v1/shards/{shard.shard}/log")
        assert (first["index"], large["index"], len(large["entry"]["records"])) == (1, 2, 2_000)


async def test_a_damaged_archive_is_said_to_be() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)

        def read_committed(from_index: int, bytes_max: int) -> bytes:
            raise Damaged("archive/1.log", 64, "no complete frame here", "verify it")

        rig.node.metadata.replica.log.read = read_committed  # type: ignore[method-assign]
        status, answer = await rig.get("/v1/shards/metadata/log")
        assert (status, answer["error"]) == (500, "DAMAGED")
        assert "archive/1.log" in answer["message"]


async def test_entries_that_retention_removed_are_gone() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)
        rig.node.metadata.replica.first_index = 5
        rig.node.metadata.commit(5)
        status, answer = await rig.get("/v1/shards/metadata/log?from=1")
        assert (status, answer["error"], answer["first_index"]) == (410, "REMOVED", 5)


async def frames_of(rig: HttpRig, path: str) -> list[Frame]:
    async with rig.session.get(rig.url + path) as answer:
        assert (answer.status, answer.content_type) == (200, "application/octet-stream")
        return frames_in(await answer.read())


@pytest.mark.parametrize("live_from", [1, 40, 1_000])
async def test_the_log_as_it_is_on_disk_a_bounded_answer_at_a_time(live_from: int) -> None:
    async with http_rig() as rig:
        log = rig.node.metadata.replica
        cause = Cause(trigger=Trigger.OFFSETS_COMMITTED)
        log.bodies = [encode_entry(cause, [RawRecord(1, 0, b"", bytes(20_000 + n))]) for n in range(90)]
        rig.node.metadata.commit(90)
        log.live_from = live_from
        found: list[Frame] = []
        while len(found) < 90:
            more = await frames_of(
                rig, f"/v1/shards/metadata/log?format=frames&from={len(found) + 1}&limit=70"
            )
            assert 0 < sum(frame.size for frame in more) < 1 << 21
            found += more
        assert [frame.body for frame in found] == log.bodies
        assert [frame.index for frame in found] == list(range(1, 91))
        assert len(await frames_of(rig, "/v1/shards/metadata/log?format=frames&limit=7")) == 7


async def test_an_entry_on_its_way_to_the_archive_is_not_called_removed() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)

        def read_committed(from_index: int, bytes_max: int) -> bytes:
            raise KeyError(from_index)

        rig.node.metadata.replica.log.read = read_committed  # type: ignore[method-assign]
        async with rig.session.get(rig.url + "/v1/shards/metadata/log") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


async def test_the_snapshot_is_served_as_it_is() -> None:
    async with http_rig() as rig:
        status, answer = await rig.get("/v1/shards/0/snapshot")
        assert (status, answer["error"]) == (404, "NO_SNAPSHOT")
        rig.node.shards[0].replica.file = bytes(range(256)) * 1_000
        async with rig.session.get(rig.url + "/v1/shards/0/snapshot") as got:
            assert got.headers["Content-Length"] == "256000"
            assert await got.read() == rig.node.shards[0].replica.file


def note(**fields: Any) -> bytes:
    payload = msgpack.packb({"kind": "refused", **fields})
    return struct.pack("<II", len(payload), crc32c(payload)) + payload


async def test_evidence_is_the_newest_notes_of_a_group() -> None:
    async with http_rig() as rig:
        older = [note(at_ms=number, group="g" if number % 2 else "other") for number in range(100)]
        newer = [note(at_ms=number, group="g", reason="group other") for number in range(100, 200)]
        rig.node.noted = [b"".join(older), b"".join(newer) + b"torn"]
        assert [one["at_ms"] for one in await lines(rig, "/v1/evidence?limit=10000")] == list(range(200))
        found = await lines(rig, "/v1/evidence?group=other")
        assert [one["at_ms"] for one in found] == list(range(0, 100, 2))
        async with rig.session.get(rig.url + "/v1/evidence?group=g&limit=120&format=msgpack") as answer:
            assert answer.headers["Quorate-Left-Out"] == "30"
            unpacker = msgpack.Unpacker()
            unpacker.feed(await answer.read())
        assert [one["at_ms"] for one in unpacker] == [*range(61, 100, 2), *range(100, 200)]


async def test_readers_of_files_are_bounded_and_told_when_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_server, "READERS_WAIT_S", 0.01)
    async with http_rig() as rig:
        rig.node.add_topic("orders", 1)
        held, reading = threading.Event(), threading.Semaphore(0)

        def read_committed(from_index: int, bytes_max: int) -> bytes:
            reading.release()
            held.wait(10)
            return b""

        log = rig.node.metadata.replica
        log.live_from = 2
        log.read = read_committed  # type: ignore[method-assign]
        readers = [
            asyncio.ensure_future(lines(rig, "/v1/shards/metadata/log"))
            for _ in range(file_server.READERS_MAX)
        ]
        for _ in readers:
            await asyncio.to_thread(reading.acquire)
        for path in ("/v1/shards/metadata/log", "/v1/shards/0/snapshot", "/v1/evidence"):
            async with rig.session.get(rig.url + path) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert (await rig.get("/healthz"))[0] == 200
        held.set()
        await asyncio.gather(*readers)
        assert await lines(rig, "/v1/evidence") == []


# Refusals


@pytest.mark.parametrize(
    ("path", "status", "error", "says"),
    [
        ("/nowhere", 404, "NOT_FOUND", "openapi.json"),
        ("/v1/shards/9/log", 404, "NO_SUCH_SHARD", "0, 1, metadata"),
        ("/v1/shards/-1/log", 404, "NO_SUCH_SHARD", "metadata"),
        ("/v1/shards/0/log?limit=0", 400, "BAD_PARAMETER", "between 1 and 10000"),
        ("/v1/shards/0/log?limit=10001", 400, "BAD_PARAMETER", "between 1 and 10000"),
        ("/v1/shards/0/log?from=-1", 400, "BAD_PARAMETER", "between 0 and"),
        ("/v1/shards/0/log?from=1e3", 400, "BAD_PARAMETER", "an integer"),
        ("/v1/shards/0/log?wait_ms=30001", 400, "BAD_PARAMETER", "between 0 and 30000"),
        ("/v1/shards/0/log?format=xml", 400, "BAD_PARAMETER", "jsonl, msgpack"),
        ("/v1/shards/0/log?form=1", 400, "UNKNOWN_PARAMETER", "did you mean"),
        ("/v1/shards/0/log?shard=1", 400, "UNKNOWN_PARAMETER", ""),
        ("/v1/groups?limit=99999", 400, "BAD_PARAMETER", "between 1 and 1000"),
        ("/healthz?x=1", 400, "UNKNOWN_PARAMETER", "known: none"),
    ],
)
async def test_refusals_say_what_was_wrong_and_what_to_do(
    path: str, status: int, error: str, says: str
) -> None:
    async with http_rig() as rig:
        got, answer = await rig.get(path)
        assert (got, answer["error"]) == (status, error)
        assert set(answer) == {"error", "message", "hint"}
        assert says in f"{answer['message']} {answer['hint']}"


async def test_groups_cannot_be_written() -> None:
    async with http_rig() as rig:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            async with rig.session.request(method, rig.url + "/v1/groups/x") as answer:
                assert answer.status == 405
                assert (await answer.json())["error"] == "METHOD_NOT_ALLOWED"


async def test_a_failure_is_json_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    async with http_rig() as rig:
        rig.node.shards = None  # type: ignore[assignment]
        status, answer = await rig.get("/v1/cluster")
        assert (status, answer["error"]) == (500, "INTERNAL")
        assert "TypeError" in caplog.text
        assert "TypeError" not in json.dumps(answer)


# Metrics and the document


async def test_metrics_are_prometheus_text() -> None:
    async with http_rig() as rig:
        await filled(rig)
        counters = rig.kafka.context.counters
        counters.requests[68] = 5
        counters.errors[8, 3] = 2
        counters.latency[68].observe(0.3)
        counters.latency[68].observe(10_000)
        counters.connections_closed["malformed"] = 1
        counters.fast_heartbeats = 9
        text = await rig.text("/metrics")
    samples = {
        name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    }
    assert samples['quorate_kafka_requests_total{api="consumer_group_heartbeat"}'] == 5 + 9
    assert samples['quorate_kafka_errors_total{api="offset_commit",error="UNKNOWN_TOPIC_OR_PARTITION"}'] == 2
    bucket = 'quorate_kafka_request_seconds_bucket{api="consumer_group_heartbeat",le="%s"}'
    assert (samples[bucket % "0.00025"], samples[bucket % "0.0005"], samples[bucket % "+Inf"]) == (
        9,
        10,
        11,
    )
    assert samples['quorate_kafka_request_seconds_count{api="consumer_group_heartbeat"}'] == 11
    assert samples['quorate_kafka_connections_closed_total{why="malformed"}'] == 1
    assert samples["quorate_kafka_fast_heartbeats_total"] == 9
    assert samples['quorate_shard_ready{shard="metadata"}'] == 1
    assert samples['quorate_shard_term{shard="0"}'] == 3
    assert samples['quorate_shard_commits_total{shard="1"}'] == 4
    assert sum(value for name, value in samples.items() if name.startswith("quorate_groups{")) == 3
    assert sum(value for name, value in samples.items() if name.startswith("quorate_offsets{")) == 1
    assert samples["quorate_topics"] == 1
    assert samples["process_resident_memory_bytes"] > 10_000_000


async def test_every_family_says_what_it_is_and_has_one_name() -> None:
    async with http_rig() as rig:
        await filled(rig)
        text = await rig.text("/metrics")
    helps = dict(re.findall(r"^# HELP (quorate_\w+) (.*)$", text, re.MULTILINE))
    assert len(helps) > 20
    assert len(set(helps.values())) == len(helps), "two families that say the same"
    names = [name.removesuffix("_total") for name in helps]
    assert len(set(names)) == len(names), "a gauge and a counter of one name"


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value matches a schema; covers the JSON Schema that the document uses."""
    kinds = schema.get("type", [])
    known = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if not any(isinstance(value, known[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        others = set(value) - set(properties)
        more = schema.get("additionalProperties")
        if others and (not more or (more is not True and not all(conforms(value[o], more) for o in others))):
            return False
        if set(schema.get("required", [])) - set(value):
            return False
        return all(conforms(value[name], inner) for name, inner in properties.items() if name in value)
    return not isinstance(value, list) or all(conforms(item, schema["items"]) for item in value)


async def test_the_document_is_true() -> None:
    """Every route of the document is called, and every answer matches its schema."""
    filled_in = {"{group_id}": "billing", "{shard}": "metadata", "{id}": "1", "{lease}": "1-a"}
    filled_in |= {"{node}": "9", "{command}": "kill"}
    refused = {
        "/v1/nodes/{node}/{command}": 403,
        "/v1/leases": 400,
        "/v1/leases/{lease}": 404,
        "/v1/leases/{lease}/acknowledge": 404,
    }
    """Leases need a coordinator (tests/clients/test_http_leases.py)."""
    bodies = {"/v1/faults": {"action": "close"}}
    async with http_rig(faults_enable=True) as rig:
        await filled(rig)
        await rig.post("/v1/faults", bodies["/v1/faults"])
        rig.node.metadata.replica.file = b"a snapshot"
        rig.node.format_level = LEADERSHIP_SINCE
        rig.node.metadata.followers = [can_lead(9)]
        _, document = await rig.get("/v1/openapi.json")
        assert document["openapi"] == "3.1.0"
        assert set(document["paths"]) == {route.path for route in ROUTES}
        assert rig.served_paths() == set(document["paths"])
        found = [(path, *one) for path, operations in document["paths"].items() for one in operations.items()]
        for path, method, operation in found:
            called = path
            for placeholder, value in filled_in.items():
                called = called.replace(placeholder, value)
            called = called.replace("metadata/transfer", "1/transfer")  # this node goes on leading the former
            ask = functools.partial(
                rig.session.request, method, json=bodies.get(path, {}) if method == "post" else None
            )
            async with ask(rig.url + called) as answer:
                if path in refused:
                    assert answer.status == refused[path], path
                    assert conforms(await answer.json(), document["components"]["schemas"]["Error"]), path
                    continue
                assert answer.status == 200, path
                content = operation["responses"]["200"]["content"]
                assert answer.content_type in content
                if answer.content_type == "application/json":
                    assert conforms(await answer.json(), content["application/json"]["schema"]), path
            if path == "/":  # the page comes whatever stands behind its address
                continue
            async with ask(rig.url + called + "?unheard-of=1") as answer:
                assert answer.status == 400
                assert conforms(await answer.json(), document["components"]["schemas"]["Error"])


async def test_a_group_is_shown_with_what_was_refused() -> None:
    """Members appear with their newest refusal, beside unknown members; the document has every field."""
    world = World()
    world.create_topic("orders", 4)
    a, b = Client(world, "a"), Client(world, "b")
    a.beat()
    b.beat()
    a.beat()
    async with http_rig() as rig:
        shard = rig.node.shard_for("g")
        shard.machine = world.shard
        shard.commit(world.shard.applied_index)
        rig.node.refusals = [
            Refusal(1_000, 8, 113, "too old", "b", "app/h", 3),
            Refusal(900, 68, 12_345, "", "", "app/h", 1),
        ]
        _, document = await rig.get("/v1/openapi.json")
        _, answer = await rig.get("/v1/groups/g")
    schema = document["paths"]["/v1/groups/{group_id}"]["get"]["responses"]["200"]["content"]
    assert conforms(answer, schema["application/json"]["schema"])
    assert answer["at_ms"] == 1_700_000_000_000
    one, other = answer["group"]["members"]
    assert one["last_refused"] is None
    assert other["last_refused"] == {
        "at_ms": 1_000, "api": "OFFSET_COMMIT (8)", "error_code": 113, "error": "STALE_MEMBER_EPOCH",
        "reason": "too old", "member_id": "b", "client": "app/h", "times": 3,
    }  # fmt: skip
    assert [refusal["error"] for refusal in answer["group"]["refused_strangers"]] == ["12345"]
    assert set(one) == set(MEMBER["properties"]), "a field of a member that the document lacks"


async def test_clients_that_do_not_read_lose_their_connection_and_others_do_not_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cluster.http.file_server.UNREAD_S", 0.2)
    async with http_rig(http_requests_max=2) as rig:
        value = OffsetCommitValue(offset=1, commit_timestamp_ms=1, metadata="x" * 4000)
        large = [
            Record(OffsetCommitKey(group_id="g", topic="orders", partition=partition), value)
            for partition in range(3000)
        ]
        rig.node.shards[0].append(*large)
        slow = [await asyncio.open_connection(*rig.listener.address, limit=1024) for _ in range(2)]
        for _, writer in slow:
            writer.write(b"GET /v1/shards/0/log HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: caplog.text.count("does not read the response") >= 2, 20)
        assert await rig.status("/healthz") == 200
        for _, writer in slow:
            writer.transport.abort()


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"\x16\x03\x01\x02\0\r\n\r\n", b"A: b\r\n" * 9],
)
async def test_what_is_no_http_gets_its_400_and_fills_no_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with http_rig() as rig:
        reader, writer = await asyncio.open_connection(*rig.listener.address)
        writer.write(sent)
        assert b" 400 " in await reader.readline()
        writer.close()
        assert await rig.status("/healthz") == 200
    assert not caplog.records


async def test_a_client_that_goes_before_its_answer_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Monitoring with a timeout of a second asks a busy node again and again."""
    async with http_rig() as rig:
        group_id = next(name for name in "abcdefgh" if rig.node.shard_for(name) is rig.node.shards[0])
        _, writer = await asyncio.open_connection(*rig.listener.address)
        writer.write(b"GET /v1/shards/0/log?from=1&wait_ms=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(20):
            while not rig.node.shards[0].waiters:
                await asyncio.sleep(0)
            writer.transport.abort()
            while any(protocol.transport for protocol in rig.listener._runner.server.connections):
                await asyncio.sleep(0)
            rig.node.add_group(group_id)
            while rig.node.shards[0].waiters:
                await asyncio.sleep(0)
        assert await rig.status("/healthz") == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
