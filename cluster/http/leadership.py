"""Changes of leadership by operators: transfers, and nodes that are drained.

Both are requests that last. The leader of the metadata shard writes them down, and every node follows them
(`raftlog.replica.balancing`). Below `LEADERSHIP_SINCE` older nodes could not read the record; until then the
leader of a shard transfers it only until balancing takes it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from cluster.http import reads
from cluster.http.node_view import HttpNode, Json
from cluster.http.routes import HttpError
from cluster.http.writes import carried_out, check_leads
from cluster.runtime.shard_runtime import AnyShardRuntime
from coordinator.leadership import asked_leader, with_drained, with_leader
from records import LEADERSHIP_SINCE, LeadershipValue

LOG = logging.getLogger("quorate.http")

TAKES_OVER_S: Final = 6.0
"""Longest wait for the new leader, which has 5 s to catch up. The request holds after it."""

NEW_LEADER_S: Final = 1.0
"""Longest wait to name the new leader: twice what an election takes."""

POLL_S: Final = 0.01


async def transfer(node: HttpNode, shard: AnyShardRuntime, to: int | None, asker: str) -> Json:
    """Let a node lead the shard from now on; naming the present leader only makes it last."""
    if to is not None:
        _check_known(node, to)
    if not reads.transfers_last(node):
        return await _transfer_once(node, shard, to, asker)
    check_leads(node, node.metadata)
    leader = node.leader_of(shard.shard)
    was_leader = None if leader is None else leader.node_id
    target = _chosen(node, shard, was_leader) if to is None else to
    if (why := _why_not(node, target)) is not None:
        raise _not_transferred(why)
    if asked_leader(node.catalog.leadership, shard.shard) == target != was_leader:
        await undo_transfer(node, shard, asker)  # it waits for balancing: asked anew, it need not
    detail = f"node {target} shall lead {reads.shard_name(shard)}"
    await _ask(node, lambda asked: with_leader(asked, shard.shard, target), detail, "NOT_TRANSFERRED", asker)
    if not await _soon(TAKES_OVER_S, lambda: _leads(node, shard, target)):
        name = reads.shard_name(shard)
        raise _not_transferred(
            f"node {target} has not taken over {name} yet; it will as soon as it can serve it",
            "/v1/cluster shows what keeps it; `quorate cluster transfer SHARD --undo` withdraws the request",
        )
    return {"shard": shard.shard, "was_leader": was_leader, "leader_id": target, "lasts": True}


async def undo_transfer(node: HttpNode, shard: AnyShardRuntime, asker: str) -> Json:
    """Leave the choice of the shard's leader to balancing again."""
    check_leads(node, node.metadata)
    was_asked = asked_leader(node.catalog.leadership, shard.shard)
    detail = f"balancing chooses the leader of {reads.shard_name(shard)}"
    await _ask(node, lambda asked: with_leader(asked, shard.shard, None), detail, "NOT_UNDONE", asker)
    return {"shard": shard.shard, "was_asked": was_asked}


async def drain(node: HttpNode, node_id: int, *, is_drained: bool, asker: str) -> Json:
    """Let a node lead nothing while another can, or lead again; its shards move after the answer."""
    _check_known(node, node_id)
    if not reads.transfers_last(node):
        message = f"draining needs format level {LEADERSHIP_SINCE}, and the cluster is at {node.format_level}"
        hint = "run `quorate cluster upgrade` when all nodes have this release"
        raise HttpError(409, "NOT_DRAINED", message, hint)
    if node.links is None:
        raise HttpError(
            409, "NOT_DRAINED", "this cluster has no other node", "stop the node without draining it"
        )
    check_leads(node, node.metadata)
    detail = f"node {node_id} is {'drained' if is_drained else 'not drained any more'}"
    await _ask(
        node, lambda asked: with_drained(asked, node_id, is_drained=is_drained), detail, "NOT_DRAINED", asker
    )
    return {"node_id": node_id, "drained": is_drained}


async def _ask(
    node: HttpNode, change: Callable[[LeadershipValue], LeadershipValue], detail: str, error: str, asker: str
) -> None:
    """Write a changed request down, and wait until all nodes in contact follow it."""
    LOG.info("%s, as requested by %s", detail, asker)
    asked = change(node.metadata.machine.view.leadership)
    await carried_out(lambda done: node.metadata.duties.ask_leadership(asked, detail, done), error)


async def _transfer_once(node: HttpNode, shard: AnyShardRuntime, to: int | None, asker: str) -> Json:
    """Hand the shard over until balancing takes it back; naming the present leader is no change."""
    own = node.info.node_id
    check_leads(node, shard)
    if to != own:
        name = "another node" if to is None else f"node {to}"
        LOG.info("transferring %s to %s, as requested by %s", reads.shard_name(shard), name, asker)
        await carried_out(lambda done: node.transfer(shard.shard, to, done), "NOT_TRANSFERRED")
    await _soon(NEW_LEADER_S, lambda: node.leader_of(shard.shard) is not None)
    leader = node.leader_of(shard.shard)
    leader_id = None if leader is None else leader.node_id
    return {"shard": shard.shard, "was_leader": own, "leader_id": leader_id, "lasts": False}


def _check_known(node: HttpNode, node_id: int) -> None:
    if node_id not in node.voters:
        known = ", ".join(map(str, node.voters))
        raise HttpError(400, "NO_SUCH_NODE", f"there is no node {node_id} in this cluster", f"nodes: {known}")


SHOWN: Final = "/v1/cluster shows the nodes, their links and their progress"


def _not_transferred(why: str, hint: str = SHOWN) -> HttpError:
    return HttpError(409, "NOT_TRANSFERRED", why, hint)


def _why_not(node: HttpNode, node_id: int) -> str | None:
    """The reason, as far as the metadata shard's leader knows, why a node cannot take over a shard."""
    if node_id in node.catalog.leadership.drained:
        return f"node {node_id} is drained: `quorate cluster undrain {node_id}` comes first"
    if node_id == node.info.node_id:
        return None
    log = node.metadata.status()["log"]
    row = next((row for row in log["followers"] if row["node_id"] == node_id), None)
    if row is None or not row["in_contact"]:
        return f"node {node_id} is not connected"
    if row["is_joining"]:
        return f"node {node_id} is still joining"
    return None if row["cannot_serve"] is None else f"node {node_id} cannot serve: {row['cannot_serve']}"


def _chosen(node: HttpNode, shard: AnyShardRuntime, leader_id: int | None) -> int:
    """The node that takes over if none is named: of those that can, the one that leads the fewest shards."""
    reasons = {one: _why_not(node, one) for one in node.voters if one != leader_id}
    able = [one for one, why in reasons.items() if why is None]
    if not able:
        raise _not_transferred("; ".join(why for why in reasons.values() if why) or "there is no other node")
    leaders = [node.leader_of(one.shard) for one in node.all_shards if one.shard != shard.shard]
    num_led = Counter(leader.node_id for leader in leaders if leader is not None)
    return min(able, key=lambda one: (num_led[one], one))


def _leads(node: HttpNode, shard: AnyShardRuntime, node_id: int) -> bool:
    leader = node.leader_of(shard.shard)
    return leader is not None and leader.node_id == node_id


async def _soon(within_s: float, holds: Callable[[], bool]) -> bool:
    """Wait until something holds; False if it does not in time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not holds():
        if loop.time() >= deadline_s:
            return False
        await asyncio.sleep(POLL_S)
    return True
