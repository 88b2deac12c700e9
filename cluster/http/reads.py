"""Answers of the HTTP API, read from the node's shards; nothing here knows of HTTP or waits.

A projection may be ahead of what is committed. So each answer comes with the index that it was read at, taken
in the same turn as the state, and whoever sends it first waits until that index is committed
(`app.as_of`).
"""

from __future__ import annotations

from cluster.http.node_view import HttpNode, Json, ShardView
from cluster.http.routes import HttpError
from cluster.node_info import NodeInfo
from coordinator import views
from records import METADATA_SHARD, topic_id_text


def not_ready(node: HttpNode) -> list[str]:
    """Why the node does not serve everything yet, one sentence per shard; empty when it does."""
    return [
        f"{shard_name(shard)} is {shard.status().get('state', 'not ready')}"
        for shard in (node.metadata, *node.shards)
        if not shard.is_ready
    ]


def shard_name(shard: ShardView) -> str:
    return "metadata" if shard.shard == METADATA_SHARD else f"shard {shard.shard}"


def shard_named(node: HttpNode, text: str) -> ShardView:
    """The shard of a path: a number or `metadata`. HttpError 404."""
    if text == "metadata":
        return node.metadata
    for shard in node.shards:
        if str(shard.shard) == text:
            return shard
    known = ", ".join([*(str(shard.shard) for shard in node.shards), "metadata"])
    raise HttpError(404, "NO_SUCH_SHARD", f"there is no shard {text[:100]!r}", f"shards: {known}")


def check_ready(shard: ShardView) -> None:
    if not shard.is_ready:
        state = shard.status().get("state", "not ready")
        raise HttpError(503, "NOT_READY", f"{shard_name(shard)} is {state}", "ask again; /readyz tells when")


def cluster(node: HttpNode) -> Json:
    return {
        "cluster_id": node.info.cluster_id,
        "node_id": node.info.node_id,
        "nodes": [_node(info) for info in node.nodes],
        "shards": [{"shard": shard.shard, **shard.status()} for shard in (node.metadata, *node.shards)],
    }


def _node(info: NodeInfo) -> Json:
    return {
        "node_id": info.node_id,
        "kafka": {"host": info.kafka_host, "port": info.kafka_port},
        "http": {"host": info.http_host, "port": info.http_port},
    }


def topics(node: HttpNode) -> Json:
    check_ready(node.metadata)
    return {
        "as_of_index": node.catalog.version,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic_id_text(topic.topic_id),
                "num_partitions": topic.num_partitions,
            }
            for topic in node.catalog.topics()
        ],
    }


def groups(node: HttpNode, after: str, limit: int) -> Json:
    """One page of all shards' groups, in the order of their names."""
    for shard in node.shards:
        check_ready(shard)
    page = views.page_of_groups([shard.machine for shard in node.shards], after, limit)
    return {
        "as_of": [
            {"shard": shard.shard, "as_of_index": shard.machine.applied_index} for shard in node.shards
        ],
        "groups": page,
        "next_after": page[-1]["group_id"] if len(page) == limit else None,
    }


def group(node: HttpNode, group_id: str) -> Json:
    shard = node.shard_for(group_id)
    check_ready(shard)
    view = views.group_view(shard.machine, group_id)
    if view is None:
        raise HttpError(
            404, "GROUP_ID_NOT_FOUND", f"there is no group {group_id[:200]!r}", "/v1/groups lists them"
        )
    return {"shard": shard.shard, "as_of_index": shard.machine.applied_index, "group": view}
