"""Answers of the HTTP API, read from the node's shards; nothing here knows HTTP, or waits.

Every node answers from its own projection, whether it leads or not. The projection of a leader, or a former
one, may be ahead of what is committed. So each answer comes with the index that it was read at, taken in the
same turn as the state, and is sent only after that index is committed (`app.Api.as_of`). Answers that may be
large are read in steps (`cluster.runtime.slices`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator

from cluster.http.node_view import HttpNode, Json
from cluster.http.routes import HttpError
from cluster.kafka.appending import log_led_here
from cluster.kafka.context import ListenerContext
from cluster.node_info import NodeInfo
from cluster.runtime.shard_runtime import AnyShardRuntime
from coordinator import admin, views
from coordinator.groupconfigs import in_force
from coordinator.leadership import asked_leader
from coordinator.offsets.lag import offsets_view
from raftlog.storage.evidence import Refusal
from records import LEADERSHIP_SINCE, METADATA_SHARD, topic_id_text
from wire.apis import api_name
from wire.errors import error_name


def not_ready(node: HttpNode) -> list[str]:
    """Return why the node is not ready, in sentences; empty if it is.

    It is ready if it serves every shard, or follows a leader elsewhere, and a new cluster has its format
    level.
    """
    reasons = [
        _why_not(node, shard) for shard in node.all_shards if not shard.is_ready and not _follows(node, shard)
    ]
    if node.is_level_awaited:
        reasons.append("the cluster is new and waits for its format level, which needs all nodes")
    return reasons


def _follows(node: HttpNode, shard: AnyShardRuntime) -> bool:
    leader = node.leader_of(shard.shard)
    return shard.is_readable and leader is not None and leader.node_id != node.info.node_id


def _why_not(node: HttpNode, shard: AnyShardRuntime) -> str:
    if shard.is_readable and node.leader_of(shard.shard) is None:
        return f"{shard_name(shard)} has no leader"
    return f"{shard_name(shard)} is {_state(shard)}"


def _state(shard: AnyShardRuntime) -> str:
    return str(shard.status().get("state", "not ready"))


def shard_name(shard: AnyShardRuntime) -> str:
    return "metadata" if shard.shard == METADATA_SHARD else f"shard {shard.shard}"


def shard_named(node: HttpNode, text: str) -> AnyShardRuntime:
    """Return the shard in a path: a number or `metadata`. HttpError 404 if there is none."""
    if text == "metadata":
        return node.metadata
    for shard in node.shards:
        if str(shard.shard) == text:
            return shard
    known = ", ".join([*(str(shard.shard) for shard in node.shards), "metadata"])
    raise HttpError(404, "NO_SUCH_SHARD", f"there is no shard {text[:100]!r}", f"shards: {known}")


def check_readable(shard: AnyShardRuntime) -> None:
    if not shard.is_readable:
        message = f"{shard_name(shard)} is {_state(shard)}, and it has not caught up with its leader yet"
        raise HttpError(503, "NOT_READY", message, "try again when /readyz returns 200")


def cluster(node: HttpNode, release: str) -> Json:
    """Return every configured node as this one sees it, and this one's shards."""
    about = node.status()
    return {
        "cluster_id": node.info.cluster_id,
        "node_id": node.info.node_id,
        "release": release,
        "format_level": node.format_level,
        "transfers_last": transfers_last(node),
        "uptime_ms": about["uptime_ms"],
        "heartbeats": about.get("heartbeats"),
        "clock": about.get("clock"),
        "nodes": _nodes(node, about, release),
        "shards": [
            {
                "shard": shard.shard,
                "asked_leader": asked_leader(node.catalog.leadership, shard.shard),
                **shard.status(),
            }
            for shard in node.all_shards
        ],
    }


def transfers_last(node: HttpNode) -> bool:
    """Whether the cluster writes down what operators ask for; the metadata shard's leader then takes it."""
    return node.format_level >= LEADERSHIP_SINCE


def _nodes(node: HttpNode, about: Json, release: str) -> list[Json]:
    """Return one row per voter. Of a node that is not in contact, only the state of the link is known."""
    links = node.links
    infos = {info.node_id: info for info in node.nodes}
    rows = {row["node_id"]: row for row in links.status()} if links is not None else {}
    peers = links.peers if links is not None else {}
    found: list[Json] = []
    for node_id in node.voters:
        info, peer = infos.get(node_id), peers.get(node_id)
        is_self = node_id == node.info.node_id
        found.append(
            {
                "node_id": node_id,
                "is_self": is_self,
                "in_contact": info is not None,
                "drained": node_id in node.catalog.leadership.drained,
                "kafka": None if info is None else {"host": info.kafka_host, "port": info.kafka_port},
                "http": None if info is None else http_address(info),
                "release": release if is_self else getattr(peer, "release", None),
                "incarnation": about["incarnation"] if is_self else getattr(peer, "incarnation", None),
                "boot_id": about["boot_id"] if is_self else getattr(peer, "boot_id", None),
                "link": rows.get(node_id),
            }
        )
    return found


def http_address(info: NodeInfo) -> Json:
    return {"host": info.http_host, "port": info.http_port}


def http_url(info: NodeInfo) -> str:
    """Return the HTTP address of a node, with brackets around an IPv6 address."""
    host = f"[{info.http_host}]" if ":" in info.http_host else info.http_host
    return f"http://{host}:{info.http_port}"


TOPICS_AT_ONCE = 1_000
"""Topics described in one step: about a millisecond."""


def topics(node: HttpNode) -> Generator[None, None, Json]:
    """Return all topics as the catalog has them at the first step."""
    check_readable(node.metadata)
    rows: list[Json] = []
    answer = {"as_of_index": node.catalog.version, "topics": rows}
    for topic in node.catalog.topics():
        rows.append(
            {
                "name": topic.name,
                "topic_id": topic_id_text(topic.topic_id),
                "num_partitions": topic.num_partitions,
            }
        )
        if not len(rows) % TOPICS_AT_ONCE:
            yield
    return answer


def groups(node: HttpNode, after: str, limit: int) -> Generator[None, None, Json]:
    """Return one page of all shards' groups, ordered by name, as they are at the last step."""
    for shard in node.shards:
        check_readable(shard)
    page = yield from views.page_of_groups([shard.machine for shard in node.shards], after, limit)
    return {
        "as_of": [
            {"shard": shard.shard, "as_of_index": shard.machine.applied_index} for shard in node.shards
        ],
        "groups": page,
        "next_after": page[-1]["group_id"] if len(page) == limit else None,
    }


STRANGERS_MAX = 20
"""At most this many refused requests are shown of clients that are not (or no longer) members of a group."""


def group(node: HttpNode, group_id: str) -> Generator[None, None, Json]:
    """Return a group as it is at the first step; `group` is None if there is none.

    Refused requests are those that this node has refused since its start, so they belong to groups that it
    led.
    """
    shard = node.shard_for(group_id)
    check_readable(shard)
    answer: Json = {
        "shard": shard.shard,
        "as_of_index": shard.machine.applied_index,
        "at_ms": node.host.wall_ms(),
        "group": None,
    }
    refused = {refusal.member_id: _refusal(refusal) for refusal in node.evidence.refusals(group_id)}
    now_ms = node.host.monotonic_ms()
    view = yield from views.group_view(shard.machine, group_id, now_ms, node.group_settings)
    if view is not None:
        for member in view["members"]:
            member["last_refused"] = refused.pop(member["member_id"], None)
        view["refused_strangers"] = list(refused.values())[:STRANGERS_MAX]
        answer["group"] = view
    return answer


def group_offsets(node: HttpNode, context: ListenerContext, group_id: str) -> Generator[None, None, Json]:
    """Return a group's offsets, the newest as they are at the last step, with the ends of logs kept here.

    HttpError 404 if there is no such group.
    """
    shard = node.shard_for(group_id)
    check_readable(shard)
    if not admin.exists(shard.machine.groups, group_id):
        raise no_group(group_id)

    def ends(topic_id: bytes, partition: int) -> tuple[int, int] | None:
        log = log_led_here(context) if keeps_messages and node.is_catalog_current else None
        if log is None:
            return None
        found = log.log((topic_id, partition))
        return found.start, found.end

    keeps_messages = context.scratch_log is not None
    offsets = shard.machine.projection.offsets
    found = yield from offsets_view(offsets, group_id, node.catalog, ends)
    answer = {
        "shard": shard.shard,
        "as_of_index": shard.machine.applied_index,
        "at_ms": node.host.wall_ms(),
        "keeps_messages": keeps_messages,
    }
    return answer | found


def _refusal(refusal: Refusal) -> Json:
    return {
        "at_ms": refusal.at_ms,
        "api": api_name(refusal.api),
        "error_code": refusal.error,
        "error": error_name(refusal.error),
        "reason": refusal.reason,
        "member_id": refusal.member_id,
        "client": refusal.client,
        "times": refusal.times,
    }


def group_configs(node: HttpNode, group_id: str) -> Generator[None, None, Json]:
    """Return the configs of a group, which need not exist, and the values in force here; one step."""
    yield from ()
    shard = node.shard_for(group_id)
    check_readable(node.metadata)
    check_readable(shard)
    settings = node.group_settings
    rows = in_force(
        settings.defaults,
        settings.for_group(group_id),
        node.catalog.configs.of(group_id),
        is_adaptive=node.settings.group_consumer_heartbeat_interval_adaptive,
    )
    return {
        "shard": shard.shard,
        "as_of_index": shard.machine.applied_index,
        "catalog_index": node.catalog.version,
        "group_id": group_id,
        "configs": [dataclasses.asdict(row) for row in rows],
    }


def no_group(group_id: str) -> HttpError:
    message = f"there is no group {group_id[:200]!r}"
    return HttpError(404, "GROUP_ID_NOT_FOUND", message, "/v1/groups lists them")
