"""The HTTP API of one node of three: standby reads, redirects, leaders, and operators' changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cluster.node_info import NodeInfo
from coordinator.assignors import BUILT_IN
from coordinator.leadership import NOTHING_ASKED
from coordinator.limits import Limits
from coordinator.shard import GroupShard
from records import LEADERSHIP_SINCE, METADATA_SHARD
from tests.listeners.http_rig import HttpRig, Shard, can_lead, http_rig
from tests.support.listener_rig import INFO, PEER

LEADER = NodeInfo(
    node_id=9, cluster_id="test-cluster", kafka_host="k", kafka_port=1, http_host="::1", http_port=8093
)


def follow(rig: HttpRig, leader: NodeInfo | None = LEADER) -> None:
    """Make the node a follower of all shards."""
    for shard in (rig.node.metadata, *rig.node.shards):
        shard.is_ready = False
        rig.node.leaders[shard.shard] = leader


# Status


async def test_every_configured_node_is_shown_in_contact_or_not() -> None:
    async with http_rig() as rig:
        _, answer = await rig.get("/v1/cluster")
        own, refused, peer = answer["nodes"]
        assert (own["is_self"], own["boot_id"], own["link"], own["in_contact"]) == (
            True,
            "boot-7",
            None,
            True,
        )
        assert own["kafka"] == {"host": "kafka.example", "port": 19092}
        assert (refused["in_contact"], refused["kafka"], refused["http"]) == (False, None, None)
        assert "another secret" in refused["link"]["trouble"]
        assert (peer["release"], peer["boot_id"], peer["incarnation"]) == ("1.2.3", "boot-9", "inc-9")
        assert (answer["format_level"], answer["transfers_last"], answer["uptime_ms"]) == (1, False, 12)


async def test_a_node_alone_has_no_links() -> None:
    async with http_rig() as rig:
        rig.node.links, rig.node.voters = None, (7,)
        _, answer = await rig.get("/v1/cluster")
        assert [(node["node_id"], node["link"]) for node in answer["nodes"]] == [(7, None)]
        assert "quorate_link" not in await rig.text("/metrics")


async def test_a_follower_is_ready_when_it_knows_a_leader_and_has_caught_up() -> None:
    async with http_rig() as rig:
        follow(rig)
        assert await rig.get("/readyz") == (200, {"ready": True, "reasons": []})
        rig.node.leaders[0] = None
        rig.node.metadata.is_readable = False
        rig.node.leaders[1] = rig.node.info
        status, answer = await rig.get("/readyz")
        reasons = ["metadata is CatchUp", "shard 0 has no leader", "shard 1 is CatchUp"]
        assert (status, answer["reasons"]) == (503, reasons)


async def test_metrics_of_followers_leaders_elections_and_links() -> None:
    async with http_rig() as rig:
        rig.node.leaders = {0: PEER, 1: None}
        rig.node.metadata.followers = [
            {"node_id": 9, "lag": 4, "last_ack_ago_ms": 3.0, "mode": "replicating"},
            {"node_id": 8, "lag": 900, "last_ack_ago_ms": None, "mode": "replicating"},
            {"node_id": 7, "lag": 900, "last_ack_ago_ms": 3.0, "mode": "probing"},
        ]
        text = await rig.text("/metrics")
    samples = dict(re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE))
    assert samples['quorate_shard_leader{shard="metadata"}'] == "7.0"
    assert samples['quorate_shard_leader{shard="0"}'] == "9.0"
    assert samples['quorate_shard_leader{shard="1"}'] == "-1.0"
    assert samples['quorate_shard_follower_lag{node="9",shard="metadata"}'] == "4.0"
    assert len([name for name in samples if name.startswith("quorate_shard_follower_lag")]) == 1
    assert samples['quorate_shard_rebuilds_total{shard="0"}'] == "2.0"
    assert samples['quorate_shard_disk_full{shard="0"}'] == "0.0"
    assert (samples['quorate_link_up{node="9"}'], samples['quorate_link_up{node="8"}']) == ("1.0", "0.0")
    assert samples['quorate_link_clock_skew_seconds{node="9"}'] == "0.0015"
    assert samples['quorate_link_received_bytes_total{node="8"}'] == "20.0"


# Reads of a standby


@pytest.mark.parametrize("path", ["/v1/groups/billing", "/v1/groups", "/v1/topics"])
async def test_a_follower_answers_from_its_standby(path: str) -> None:
    async with http_rig() as rig:
        rig.node.add_group("billing")
        follow(rig, None)
        assert (await rig.get(path))[0] == 200


async def test_an_answer_read_before_a_rebuild_is_dropped() -> None:
    """A deposed leader's entry 1 was replaced by another one: no answer from the old one may be sent."""
    async with http_rig() as rig:
        rig.node.add_group("late", committed=False)
        shard = rig.node.shard_for("late")
        for path in ("/v1/groups/late", "/v1/groups"):
            asked = asyncio.ensure_future(rig.get(path))
            while not shard.waiters:
                await asyncio.sleep(0)
            shard.machine = GroupShard(shard.shard, Limits(), BUILT_IN)
            shard.commit(shard.waiters[0].index)
            status, answer = await asked
            assert (status, answer["error"]) == (503, "NOT_COMMITTED")
            shard.commit_index = 0
            rig.node.add_group("late", committed=False)


async def test_a_rebuild_is_not_read() -> None:
    async with http_rig() as rig:
        rig.node.add_group("billing")
        rig.node.shard_for("billing").is_readable = False
        for path in ("/v1/groups/billing", "/v1/groups"):
            status, answer = await rig.get(path)
            assert (status, answer["error"]) == (503, "NOT_READY")


async def test_a_followers_log_is_fed_as_well() -> None:
    async with http_rig() as rig:
        rig.node.add_group("billing")
        follow(rig, None)
        shard = rig.node.shard_for("billing").shard
        assert '"index":1' in await rig.text(f"/v1/shards/{shard}/log")


# Consistent reads


async def raw(rig: HttpRig, path: str) -> tuple[int, str, Any]:
    async with rig.session.get(rig.url + path, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location", ""), await answer.json()


async def test_a_consistent_read_goes_to_the_leader() -> None:
    async with http_rig() as rig:
        follow(rig)
        status, location, answer = await raw(rig, "/v1/groups/a%2Fb?consistent=1")
        assert (status, location) == (307, "http://[::1]:8093/v1/groups/a%2Fb?consistent=1")
        assert (answer["error"], "node 9 leads" in answer["message"]) == ("NOT_LEADER", True)
        assert (await raw(rig, "/v1/topics?consistent=1"))[1] == "http://[::1]:8093/v1/topics?consistent=1"
        assert (await raw(rig, "/v1/topics?consistent=0"))[0] == 200


@pytest.mark.parametrize("leader", [None, PEER], ids=["none", "without HTTP"])
async def test_without_a_leader_there_is_no_consistent_read(leader: NodeInfo | None) -> None:
    async with http_rig() as rig:
        follow(rig, leader)
        status, location, answer = await raw(rig, "/v1/groups/x?consistent=1")
        assert (status, location, answer["error"]) == (503, "", "NO_LEADER")


async def test_the_leader_proves_that_it_leads_before_it_answers() -> None:
    async with http_rig() as rig:
        rig.node.add_group("billing")
        shard = rig.node.shard_for("billing")
        for why, status in ((None, 200), ("leadership was lost", 503)):
            asked = asyncio.ensure_future(rig.get("/v1/groups/billing?consistent=1"))
            while not shard.proofs:
                await asyncio.sleep(0)
            assert not asked.done()
            shard.proofs.pop()(why)
            got, answer = await asked
            assert got == status
        assert (answer["error"], "leadership was lost" in answer["message"]) == ("NOT_PROVEN", True)


async def test_that_a_group_is_absent_is_proven_too() -> None:
    async with http_rig(held_reply_timeout_ms=100) as rig:
        status, answer = await rig.get("/v1/groups/nobody?consistent=1")
        assert (status, answer["error"]) == (503, "NOT_PROVEN")
        assert "no quorum" in answer["message"]


def catalog_at(rig: HttpRig, num_topics: int) -> int:
    """Put topics into the metadata shard; return the index of its newest entry."""
    for number in range(num_topics):
        rig.node.add_topic(f"topic-{number}", 1)
    assert rig.node.metadata.commit_index == num_topics
    return num_topics


async def asked(rig: HttpRig, path: str, *shards: Shard, why: str | None = None) -> tuple[int, str, Any]:
    """Return the answer when these shards get their read proofs in turn, the last one with error `why`."""
    answer = asyncio.ensure_future(raw(rig, path))
    for shard in shards:
        while not shard.proofs:
            assert not answer.done(), f"shard {shard.shard} was not asked for a proof"
            await asyncio.sleep(0)
        shard.proofs.pop()(why if shard is shards[-1] else None)
    return await answer


async def test_configs_are_proven_by_the_leaders_of_the_metadata_and_of_the_groups_shard() -> None:
    path = "/v1/groups/billing/configs?consistent=1"
    async with http_rig() as rig:
        metadata, shard = rig.node.metadata, rig.node.shard_for("billing")
        index = catalog_at(rig, 3)
        status, _, answer = await asked(rig, path, metadata, shard)
        assert (status, answer["catalog_index"]) == (200, index)
        for proven in ((metadata,), (metadata, shard)):
            status, _, answer = await asked(rig, path, *proven, why="leadership was lost")
            assert (status, answer["error"]) == (503, "NOT_PROVEN")


async def test_a_read_of_configs_visits_the_metadata_shards_leader_first() -> None:
    path = "/v1/groups/billing/configs?consistent=1"
    async with http_rig() as rig:
        metadata, shard = rig.node.metadata, rig.node.shard_for("billing")
        catalog_at(rig, 3)
        rig.node.leaders[metadata.shard] = LEADER
        status, location, answer = await raw(rig, path)
        assert (status, location) == (307, f"http://[::1]:8093{path}"), (
            "it leads the group, and not the catalog"
        )
        assert answer["message"] == "node 9 leads metadata"
        status, location, _ = await asked(rig, f"{path}&catalog_index=3", shard)
        assert status == 200, "sent on by that leader, whose catalog is not newer"
        rig.node.leaders = {shard.shard: LEADER}
        status, location, _ = await asked(rig, path, metadata)
        assert (status, location) == (307, f"http://[::1]:8093{path}&catalog_index=3")
        rig.node.leaders[shard.shard] = None
        status, _, answer = await asked(rig, path, metadata)
        assert (status, answer["error"]) == (503, "NO_LEADER")


async def test_a_groups_leader_waits_for_the_catalog_that_was_proven() -> None:
    path = "/v1/groups/billing/configs?consistent=1&catalog_index=4"
    async with http_rig(held_reply_timeout_ms=200) as rig:
        metadata, shard = rig.node.metadata, rig.node.shard_for("billing")
        catalog_at(rig, 3)
        rig.node.leaders[metadata.shard] = LEADER
        status, _, answer = await raw(rig, path)
        assert (status, answer["error"]) == (503, "NOT_COMMITTED")
    async with http_rig() as rig:
        metadata, shard = rig.node.metadata, rig.node.shard_for("billing")
        catalog_at(rig, 3)
        rig.node.leaders[metadata.shard] = LEADER
        answering = asyncio.ensure_future(raw(rig, path))
        while not metadata.waiters:
            await asyncio.sleep(0)
        rig.node.add_topic("newest", 1)
        while not shard.proofs:
            await asyncio.sleep(0)
        shard.proofs.pop()(None)
        status, _, answer = await answering
        assert (status, answer["catalog_index"]) == (200, 4)


@pytest.mark.parametrize("value", ["2", "-1", "yes", ""])
async def test_consistent_is_0_or_1(value: str) -> None:
    async with http_rig() as rig:
        assert (await rig.get(f"/v1/topics?consistent={value}"))[0] == 400


# Changes


async def test_a_transfer_is_answered_with_the_new_leader() -> None:
    async with http_rig() as rig:
        answer = await rig.post("/v1/shards/1/transfer", {"to": 9})
        assert answer == (200, {"shard": 1, "was_leader": 7, "leader_id": 9, "lasts": False})
        answer = await rig.post("/v1/shards/metadata/transfer")
        found = {"shard": METADATA_SHARD, "was_leader": 7, "leader_id": 9, "lasts": False}
        assert answer == (200, found)
        assert rig.node.changes == [("transfer", 1, 9), ("transfer", METADATA_SHARD, None)]


async def test_a_transfer_to_the_leader_itself_changes_nothing() -> None:
    async with http_rig() as rig:
        answer = await rig.post("/v1/shards/1/transfer", {"to": 7})
        found = {"shard": 1, "was_leader": 7, "leader_id": 7, "lasts": False}
        assert (answer, rig.node.changes) == ((200, found), [])


@asynccontextmanager
async def leading_rig() -> AsyncIterator[HttpRig]:
    """A node that leads the metadata shard, at a format level with lasting transfers."""
    async with http_rig() as rig:
        rig.node.format_level = LEADERSHIP_SINCE
        rig.node.metadata.followers = [can_lead(8, in_contact=False), can_lead(9)]
        yield rig


async def test_a_transfer_lasts_until_it_is_undone() -> None:
    async with leading_rig() as rig:
        answer = await rig.post("/v1/shards/1/transfer", {"to": 9})
        assert answer == (200, {"shard": 1, "was_leader": 7, "leader_id": 9, "lasts": True})
        rig.node.leaders[1] = INFO
        answer = await rig.post("/v1/shards/1/transfer")
        assert answer[1]["leader_id"] == 9, "the only other node that can lead"
        _, seen = await rig.get("/v1/cluster")
        assert seen["transfers_last"]
        assert [shard["asked_leader"] for shard in seen["shards"]] == [None, None, 9]
        assert 'quorate_shard_asked_leader{shard="1"} 9.0' in await rig.text("/metrics")
        async with rig.session.delete(rig.url + "/v1/shards/1/transfer") as undone:
            assert await undone.json() == {"shard": 1, "was_asked": 9}
        assert rig.node.catalog.leadership == NOTHING_ASKED
        last = ("balancing chooses the leader of shard 1",)
        asked = ("node 9 shall lead shard 1",)
        assert rig.node.changes == [asked, last, asked, last], "asked again, it leads at once"


async def test_a_drained_node_is_shown_and_gets_no_transfer() -> None:
    async with leading_rig() as rig:
        assert await rig.post("/v1/nodes/9/drain") == (200, {"node_id": 9, "drained": True})
        _, seen = await rig.get("/v1/cluster")
        assert [node["drained"] for node in seen["nodes"]] == [False, False, True]
        assert 'quorate_node_drained{node="9"} 1.0' in await rig.text("/metrics")
        status, answer = await rig.post("/v1/shards/1/transfer", {"to": 9})
        why = "node 9 is drained: `quorate cluster undrain 9` comes first"
        assert (status, answer["error"], answer["message"]) == (409, "NOT_TRANSFERRED", why)
        status, answer = await rig.post("/v1/shards/1/transfer")
        assert (status, answer["message"]) == (409, f"node 8 is not connected; {why}")
        async with rig.session.delete(rig.url + "/v1/nodes/9/drain") as undrained:
            assert await undrained.json() == {"node_id": 9, "drained": False}
        assert (await rig.post("/v1/nodes/4/drain"))[1]["error"] == "NO_SUCH_NODE"


async def test_a_target_that_cannot_serve_is_refused_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with leading_rig() as rig:
        for other, why in (
            ({"is_joining": True}, "is still joining"),
            ({"cannot_serve": "full"}, "cannot serve"),
        ):
            rig.node.metadata.followers = [can_lead(9, **other)]
            status, answer = await rig.post("/v1/shards/1/transfer", {"to": 9})
            assert (status, why in answer["message"], rig.node.changes) == (409, True, [])
        rig.node.metadata.followers = [can_lead(8)]
        monkeypatch.setattr("cluster.http.leadership.TAKES_OVER_S", 0.02)
        status, answer = await rig.post("/v1/shards/1/transfer", {"to": 8})
        assert (status, answer["error"]) == (409, "NOT_TRANSFERRED")
        assert "node 8 has not taken over shard 1 yet" in answer["message"]
        assert "--undo" in answer["hint"]


async def test_older_nodes_must_go_before_a_node_can_be_drained() -> None:
    async with http_rig() as rig:
        rig.node.format_level = LEADERSHIP_SINCE - 1
        status, answer = await rig.post("/v1/nodes/9/drain")
        assert (status, answer["error"], rig.node.changes) == (409, "NOT_DRAINED", [])
        assert "`quorate cluster upgrade`" in answer["hint"]
        rig.node.format_level, rig.node.links = LEADERSHIP_SINCE, None
        assert (await rig.post("/v1/nodes/9/drain"))[1]["message"] == "this cluster has no other node"


async def test_an_upgrade_is_answered_with_the_level() -> None:
    async with http_rig() as rig:
        assert await rig.post("/v1/cluster/upgrade") == (200, {"format_level": 2})
        rig.node.refusal = "node 8 is not connected: start it first"
        status, answer = await rig.post("/v1/cluster/upgrade")
        assert (status, answer["error"], answer["message"]) == (409, "NOT_UPGRADED", rig.node.refusal)


@pytest.mark.parametrize("path", ["/v1/shards/0/transfer", "/v1/cluster/upgrade"])
async def test_a_follower_names_the_leader(path: str) -> None:
    async with http_rig() as rig:
        follow(rig)
        status, answer = await rig.post(path)
        assert (status, answer["error"]) == (409, "NOT_LEADER")
        assert answer["leader"] == {"node_id": 9, "http": {"host": "::1", "port": 8093}}
        assert "http://[::1]:8093" in answer["hint"]
        follow(rig, None)
        status, answer = await rig.post(path)
        assert (status, answer["error"], rig.node.changes) == (503, "NO_LEADER", [])


async def test_a_refused_transfer_says_why() -> None:
    async with http_rig() as rig:
        rig.node.refusal = "node 8 is not connected"
        status, answer = await rig.post("/v1/shards/0/transfer", {"to": 8})
        assert (status, answer["error"], answer["message"]) == (409, "NOT_TRANSFERRED", rig.node.refusal)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "BAD_BODY"),
        (b"{", "BAD_BODY"),
        (b"[]", "BAD_BODY"),
        (b"null", "BAD_BODY"),
        (b"\xff\xfe", "BAD_BODY"),
        (b"[" * 200_000, "BAD_BODY"),
        (b'{"to":' + b"9" * 5_000 + b"}", "BAD_BODY"),
        (b'{"to":' + b"[" * 500 + b"]" * 500 + b"}", "BAD_PARAMETER"),
        (b'{"to":"9"}', "BAD_PARAMETER"),
        (b'{"to":true}', "BAD_PARAMETER"),
        (b'{"to":9.0}', "BAD_PARAMETER"),
        (b'{"to":NaN}', "BAD_PARAMETER"),
        (b'{"to":-1}', "BAD_PARAMETER"),
        (b'{"to":99999999999999999999}', "BAD_PARAMETER"),
        (b'{"to":4}', "NO_SUCH_NODE"),
        (b'{"too":9}', "UNKNOWN_FIELD"),
        (b'{"to":9,"force":1}', "UNKNOWN_FIELD"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_bodies_that_are_refused(body: bytes, error: str) -> None:
    async with http_rig() as rig:
        given = {"data": body, "headers": {"Content-Type": "application/json"}}
        status, answer = await rig.post("/v1/shards/0/transfer", **given)
        assert (status, answer["error"], rig.node.changes) == (400, error, [])
        assert set(answer) == {"error", "message", "hint"}
        assert len(json.dumps(answer)) < 1_000


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"]
)
async def test_a_form_cannot_change_anything(content_type: str) -> None:
    async with http_rig() as rig:
        for path in ("/v1/shards/0/transfer", "/v1/cluster/upgrade"):
            status, answer = await rig.post(path, data=b"{}", headers={"Content-Type": content_type})
            assert (status, answer["error"], rig.node.changes) == (415, "NOT_JSON", [])


OPENED: dict[str, Any] = {
    "http_host": "0.0.0.0",
    "insecure": True,
    "http_advertised_host": "Node-1.example",
    "kafka_advertised_host": "kafka-1.example",
    "http_allowed_hosts": ("quorate.example", "balancer"),
}


@pytest.mark.parametrize("settings", [{}, OPENED], ids=["loopback", "opened"])
@pytest.mark.parametrize("path", ["/v1/cluster", "/metrics", "/v1/openapi.json", "/nothing"])
async def test_who_asks_under_a_foreign_name_learns_nothing(path: str, settings: dict[str, Any]) -> None:
    async with http_rig(**settings) as rig:
        port = rig.listener.address[1]
        url = f"http://127.0.0.1:{port}"
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil", "["):
            async with rig.session.get(url + path, headers={"Host": name}) as answer:
                said = await answer.json()
                assert (answer.status, said["error"]) == (403, "FOREIGN_HOST"), name
                assert "http.allowed.hosts" in said["hint"]
        for name in (
            *(
                "localhost",
                f"LOCALHOST:{port}",
                "127.0.0.1",
                f"127.0.0.1:{port}",
                "[::1]:80",
                "h:8",
                "10.1.2.3",
            ),
            "",
            *(("node-1.EXAMPLE.", "kafka-1.example:9", "quorate.example", "Balancer:80") if settings else ()),
        ):
            async with rig.session.get(url + path, headers={"Host": name}) as answer:
                assert answer.status == (404 if path == "/nothing" else 200), name


async def test_a_star_allows_every_name_and_health_needs_no_name() -> None:
    async with http_rig(http_allowed_hosts=("*",)) as rig:
        answer = await rig.session.get(f"{rig.url}/v1/cluster", headers={"Host": "evil.example"})
        assert answer.status == 200
        answer.release()
    async with http_rig(http_host="0.0.0.0", insecure=True) as rig:
        for path in ("/healthz", "/readyz"):
            url = f"http://127.0.0.1:{rig.listener.address[1]}{path}"
            async with rig.session.get(url, headers={"Host": "balancer.example"}) as answer:
                assert answer.status == 200


async def test_only_a_page_of_the_node_itself_may_change_anything() -> None:
    async with http_rig() as rig:
        port = rig.listener.address[1]
        for origin in ("http://evil.example", "null", f"http://evil.example:{port}", "https://127.0.0.1", ""):
            # Also with a Host header of the same name: another site's name may resolve to this machine.
            headers = {"Origin": origin, "Host": origin.removeprefix("http://") or "x"}
            status, answer = await rig.post("/v1/cluster/upgrade", json={}, headers=headers)
            assert (status, answer["error"], rig.node.changes) == (403, "FOREIGN_HOST", [])
            status, answer = await rig.post("/v1/cluster/upgrade", json={}, headers={"Origin": origin})
            assert (status, answer["error"], rig.node.changes) == (403, "FOREIGN_ORIGIN", [])
        for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}", "http://h:8"):
            status, _ = await rig.post("/v1/cluster/upgrade", json={}, headers={"Origin": origin})
            assert status == 200


async def test_a_large_body_and_a_slow_one_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.http.writes.BODY_S", 0.1)
    async with http_rig(http_body_max_bytes=2_000) as rig:
        json_type = {"Content-Type": "application/json"}
        status, answer = await rig.post("/v1/cluster/upgrade", data=b" " * 3_000, headers=json_type)
        assert (status, rig.node.changes) == (413, [])
        assert set(answer) == {"error", "message", "hint"}
        reader, writer = await asyncio.open_connection(*rig.listener.address)
        head = b"POST /v1/cluster/upgrade HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 2\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()
        assert rig.node.changes == []


async def test_an_outcome_that_does_not_come_is_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.http.writes.CHANGE_S", 0.05)
    async with http_rig() as rig:
        late: list[Any] = []
        rig.node.transfer = lambda shard, to, done: late.append(done)  # type: ignore[method-assign]
        status, answer = await rig.post("/v1/shards/0/transfer")
        assert (status, answer["error"]) == (503, "UNKNOWN_OUTCOME")
        late[0](None)


async def test_other_methods_are_refused() -> None:
    async with http_rig() as rig:
        for path, known in (("/v1/shards/0/transfer", "POST, DELETE"), ("/v1/cluster/upgrade", "POST")):
            for method in {"GET", "PUT", "DELETE", "OPTIONS"} - {*known.split(", ")}:
                async with rig.session.request(method, rig.url + path) as answer:
                    assert answer.status == 405
                    assert "Access-Control-Allow-Origin" not in answer.headers
