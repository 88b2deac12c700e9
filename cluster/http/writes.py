"""The changes that an operator may make over HTTP: the leader of a shard, the cluster's format level, faults.

Only the leader can make the first two; another node answers 409 and names the leader. Faults concern the node
that is asked, and only if its settings allow them. Invariants: a page in a browser on the same machine cannot
make a change. It can send a POST anywhere, but only with the content types of a form unless the server allows
more (CORS), and it cannot hide its Origin: both are checked before the body is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from cluster.faults.rule import FaultError, rule_of
from cluster.http import reads
from cluster.http.node_view import HttpNode, Json
from cluster.http.routes import HttpError, Route
from cluster.kafka.listener import KafkaListener
from cluster.node_info import NodeInfo
from cluster.runtime.shard_runtime import AnyShardRuntime

LOG = logging.getLogger("quorate.http")

BODY_S = 5.0
"""Time for a body, which is a few bytes; a slower client would hold a place at work."""

CHANGE_S = 10.0
"""Longest wait for a change to be committed, or for a hand-over that lasts until balancing; after this the
outcome is unknown."""

Change = Callable[[Callable[[str | None], None]], None]


def check_origin(request: web.Request, own: NodeInfo, bound: tuple[str, int]) -> None:
    """Raise HttpError 403 for a request that a page of another site sent."""
    origin = request.headers.get("Origin")
    if origin is not None and origin not in _own_origins(own, bound):
        hint = "call it from a program or from a page of this node"
        raise HttpError(
            403, "FOREIGN_ORIGIN", f"pages of {origin[:100]!r} must not change this cluster", hint
        )


async def body_of(request: web.Request, route: Route) -> dict[str, Any]:
    """Return the fields of the body; HttpError 408, 415 or 400 if it is not allowed or not valid."""
    if request.content_type != "application/json":
        message = f"the body's content type is {request.content_type[:100]!r}"
        raise HttpError(415, "NOT_JSON", message, "send Content-Type: application/json and a JSON object")
    try:
        data = await asyncio.wait_for(request.read(), BODY_S)
    except TimeoutError:
        raise HttpError(
            408, "SLOW_BODY", "the body did not arrive in time", "send the complete body at once"
        ) from None
    return route.parse_body(data)


def _own_origins(own: NodeInfo, bound: tuple[str, int]) -> set[str]:
    host, port = bound
    local = {f"http://{name}:{port}" for name in (host, "localhost", "127.0.0.1", "[::1]")}
    return local | {reads.http_url(own)}


def check_leads(node: HttpNode, shard: AnyShardRuntime) -> None:
    """Raise HttpError 409 with the leader's address if this node does not lead, 503 if none does."""
    leader = node.leader_of(shard.shard)
    name = reads.shard_name(shard)
    if leader is None:
        raise no_leader(shard)
    if leader.node_id != node.info.node_id:
        named = {"node_id": leader.node_id, "http": reads.http_address(leader)}
        message = f"node {leader.node_id} leads {name}, not node {node.info.node_id}"
        raise HttpError(409, "NOT_LEADER", message, f"ask {reads.http_url(leader)}", leader=named)


def no_leader(shard: AnyShardRuntime) -> HttpError:
    message = f"{reads.shard_name(shard)} has no leader at the moment"
    return HttpError(503, "NO_LEADER", message, "try again; /v1/cluster shows which nodes are connected")


async def upgrade(node: HttpNode, asker: str) -> Json:
    check_leads(node, node.metadata)
    LOG.info("raising the format level, as requested by %s", asker)
    await carried_out(node.upgrade, "NOT_UPGRADED")
    return {"format_level": node.format_level}


def faults(kafka: KafkaListener) -> Json:
    table = kafka.context.faults
    now_ms = kafka.context.host.monotonic_ms()
    return {
        "enabled": kafka.settings.faults_enable,
        "next_id": table.next_id,
        "faults": table.listed(now_ms),
    }


def add_fault(kafka: KafkaListener, given: Json, asker: str) -> Json:
    """Set a fault on this node; HttpError 403 if its settings do not allow it, 400 or 409 if it cannot be."""
    _check_faults_enabled(kafka)
    try:
        rule = rule_of(given)
    except FaultError as error:
        raise HttpError(400, "BAD_FAULT", str(error), error.hint) from None
    try:
        fault = kafka.add_fault(rule, given["id"])
    except FaultError as error:
        raise HttpError(409, "NOT_ADDED", str(error), error.hint) from None
    LOG.warning("fault %d: %s, as requested by %s", fault.fault_id, rule.words(), asker)
    return fault.as_dict(kafka.context.host.monotonic_ms())


def advance_clock(node: HttpNode, kafka: KafkaListener, ms: int, asker: str) -> Json:
    """Let time pass on this node; HttpError 403 if its settings do not allow faults."""
    _check_faults_enabled(kafka)
    LOG.warning("the clock of the coordinator is advanced by %.3f s, as requested by %s", ms / 1000, asker)
    node.advance(ms)
    return {"advanced_ms": ms}


def _check_faults_enabled(kafka: KafkaListener) -> None:
    if not kafka.settings.faults_enable:
        hint = "start the node with faults.enable = true (--faults-enable), never where others rely on it"
        raise HttpError(403, "FAULTS_DISABLED", "this node does not allow faults", hint)


def clear_faults(kafka: KafkaListener, fault_id: int | None, asker: str) -> Json:
    """Clear one fault, or all; HttpError 404 if there is no such fault."""
    num_cleared = kafka.context.faults.clear(fault_id)
    if fault_id is not None and not num_cleared:
        raise HttpError(404, "NO_SUCH_FAULT", f"there is no fault {fault_id}", "GET /v1/faults lists them")
    if num_cleared:
        faults_words = "1 fault" if num_cleared == 1 else f"{num_cleared} faults"
        LOG.warning("%s cleared, as requested by %s", faults_words, asker)
    return {"cleared": num_cleared}


async def carried_out(change: Change, error: str) -> None:
    """Wait for a change; HttpError 409 with the reason if it was not made, 503 if the outcome is unknown."""
    ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def done(reason: str | None) -> None:
        if not ended.done():
            ended.set_result(reason)

    change(done)
    try:
        reason = await asyncio.wait_for(ended, CHANGE_S)
    except TimeoutError:
        message = f"no result after {CHANGE_S:.0f} s; the change may still happen"
        raise HttpError(503, "UNKNOWN_OUTCOME", message, "check /v1/cluster") from None
    if reason is not None:
        raise HttpError(409, error, reason, "/v1/cluster shows the nodes, their links and their progress")
