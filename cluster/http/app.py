"""The HTTP API on aiohttp: the routes of `routes` with the answers of `reads`, and the files of the log.

Invariants: every refusal is JSON with error, message and hint, also where aiohttp itself refuses
(only a request that is not HTTP at all gets aiohttp's plain 400); probes of liveness and readiness are always
answered; requests at work and long polls are bounded; an answer is read and encoded in slices, so that a long
one does not delay the Kafka port, which shares the loop. The log is served from files by `file_server`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from cluster.http import leadership, reads, writes
from cluster.http.feeds import GroupFeeds
from cluster.http.file_server import FileServer, busy, taken
from cluster.http.hosts import OPEN_PATHS, Hosts
from cluster.http.launcher import Launcher
from cluster.http.leases import LeaseServer
from cluster.http.metrics import NodeMetrics
from cluster.http.node_view import HttpNode, Json
from cluster.http.openapi import openapi
from cluster.http.page import let_pages_read, page
from cluster.http.places import PlacedConnection, Places
from cluster.http.routes import ROUTES, HttpError, Route
from cluster.http.text import json_text
from cluster.kafka.listener import KafkaListener
from cluster.node_info import NodeInfo
from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.runtime.slices import Timed
from cluster.settings import Settings

LOG = logging.getLogger("quorate.http")

CATALOG_INDEX = "catalog_index"

LEASES = web.AppKey("leases", LeaseServer)

SCRAPES_KEPT = 8
"""Extra requests at work that are reserved for /metrics, which shows what is wrong with a busy node."""

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

T = TypeVar("T")


def application(
    node: HttpNode, settings: Settings, kafka: KafkaListener, places: Places, version: str
) -> web.Application:
    """Make the whole API of one node."""
    metrics = NodeMetrics(node, kafka, version)
    leases = LeaseServer(node, settings, kafka)
    api = Api(node, settings, metrics, places, version, kafka, leases)
    logging.getLogger("aiohttp.server").addFilter(_CLIENTS_FAULT)
    app = web.Application(client_max_size=settings.http_body_max_bytes, middlewares=[api.guard])
    app.cleanup_ctx.append(metrics.looking)
    app.on_response_prepare.append(api.let_pages_read)
    app.on_shutdown.append(api.feeds.end)
    app[LEASES] = leases
    for route in ROUTES:
        if route.method == "GET":  # and HEAD
            app.router.add_get(route.path, api.handler(route), name=route.name)
        else:
            app.router.add_route(route.method, route.path, api.handler(route), name=route.name)
    return app


class _ClientsFault(logging.Filter):
    """Keeps requests that are not HTTP out of the node's log: the sender gets a 400, and that is enough."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_CLIENTS_FAULT = _ClientsFault()


def _sent_on(shard: AnyShardRuntime, leader: NodeInfo, path: str) -> HttpError:
    """Return a 307 to the node that leads a shard."""
    message = f"node {leader.node_id} leads {reads.shard_name(shard)}"
    location = reads.http_url(leader) + path
    return HttpError(307, "NOT_LEADER", message, "follow the redirect", location=location)


def refusal(error: HttpError) -> web.Response:
    return web.json_response(error.body, status=error.status, headers=error.headers)


class Api:
    """Handlers, one per route; each has the route's name."""

    def __init__(
        self,
        node: HttpNode,
        settings: Settings,
        metrics: NodeMetrics,
        places: Places,
        release: str,
        kafka: KafkaListener,
        leases: LeaseServer,
    ) -> None:
        self._node = node
        self._leases = leases
        self._places = places
        self._settings = settings
        self._hosts = Hosts(settings)
        self._launcher = Launcher(settings.launcher_dir)
        self._metrics = metrics
        self._release = release
        self._document = openapi(release)
        self._slices = kafka.context.slices
        self._kafka = kafka
        self._at_work = 0
        self._waiting = 0
        self._files = FileServer()
        self.feeds = GroupFeeds(self._files, self._group_text, self._committed)

    # Around every request.

    @staticmethod
    def _bound(request: web.Request) -> tuple[str, int]:
        """Return the address of this end of the connection."""
        transport = request.transport
        name = transport.get_extra_info("sockname") if transport is not None else None
        return (str(name[0]), int(name[1])) if name else ("", 0)

    def handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        handle: Handler = getattr(self, route.name)

        async def parsed(request: web.Request) -> web.StreamResponse:
            given = route.parse(request.match_info, request.query)
            if route.method != "GET":
                writes.check_origin(request, self._node.info, self._bound(request))
            if route.method == "POST":
                given |= await writes.body_of(request, route)
            return await handle(request, given)

        return parsed

    @web.middleware
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Bound the requests at work and the connections that they hold; probes are answered at once."""
        place = request.transport.get_protocol() if request.transport is not None else None
        if not isinstance(place, PlacedConnection):
            return web.Response()  # the client has gone
        if request.path in OPEN_PATHS:
            self._places.answered(place)
            return await self._answer(request, handler)
        kept = SCRAPES_KEPT if request.path == "/metrics" else 0
        waiting = self._waiting + self._leases.num_streams
        is_busy = self._at_work - waiting >= self._settings.http_requests_max + kept
        if is_busy or not self._places.has_room(kept):
            self._places.answered(place)
            hint = "try again later (http.requests.max, http.connections.max)"
            return refusal(HttpError(503, "BUSY", "too many requests at once", hint))
        self._at_work += 1
        self._places.begins(place)
        try:
            return await self._answer(request, handler)
        finally:
            self._at_work -= 1
            self._places.answered(place)

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turn every failure into JSON."""
        try:
            self._hosts.check(request.headers.get("Host"), request.path, self._node.info)
            response = await handler(request)
            await taken(request, response.prepare(request))
            await taken(request, response.write_eof())
            return response
        except HttpError as error:
            return refusal(error)
        except web.HTTPException as error:
            return refusal(_of_aiohttp(error))
        except ConnectionError:
            return web.Response()  # the client has gone; if raised, this would be logged with a traceback
        except Exception:
            LOG.exception("%s %s failed", request.method, request.path)
            hint = "the node's log has the details"
            return refusal(
                HttpError(500, "INTERNAL", "the node failed to respond because of an internal error", hint)
            )

    async def let_pages_read(self, request: web.Request, response: web.StreamResponse) -> None:
        let_pages_read(request, response, self._node.known_nodes)

    async def as_of(self, shard: AnyShardRuntime, machine: Any, index: int) -> None:
        """Wait until what was read of `machine` at `index` is committed; HttpError 503 if that never happens.

        Entries that a deposed leader had applied may be replaced by others with the same indexes. Its
        projection is then rebuilt, and what was read of the old one is dropped.
        """
        committed = await self._committed(shard, index, self._settings.held_reply_timeout_ms)
        if not committed or shard.machine is not machine:
            message = f"index {index} of {reads.shard_name(shard)} is not committed yet"
            raise HttpError(503, "NOT_COMMITTED", message, "try again")

    def _leader(self, shard: AnyShardRuntime) -> NodeInfo:
        """Return the node that leads the shard, if it can be asked; HttpError 503 otherwise."""
        leader = self._node.leader_of(shard.shard)
        if leader is None or not leader.http_port:
            raise writes.no_leader(shard)
        return leader

    def proof(self, request: web.Request, shard: AnyShardRuntime) -> asyncio.Future[object]:
        """Begin to prove that this node leads the shard; to be called in the turn of the read.

        HttpError 307 to the leader if another node leads, 503 if none does.
        """
        leader = self._leader(shard)
        if leader.node_id != self._node.info.node_id:
            raise _sent_on(shard, leader, request.path_qs)
        proven: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        shard.requests.when_consistent(lambda why: None if proven.done() else proven.set_result(why))
        return proven

    async def proven(self, shard: AnyShardRuntime, proof: asyncio.Future[object]) -> None:
        """Wait for the proof; HttpError 503 without one."""
        try:
            why = await asyncio.wait_for(proof, self._settings.held_reply_timeout_ms / 1000)
        except TimeoutError:
            why = "no quorum acknowledged in time"
        if why is not None:
            reason = getattr(why, "value", why)
            message = f"node {self._node.info.node_id} cannot prove that it leads {reads.shard_name(shard)}"
            raise HttpError(503, "NOT_PROVEN", f"{message}: {reason}", "try again")

    async def _newest_catalog(self, request: web.Request, shard: AnyShardRuntime, known_index: int) -> None:
        """Wait for the newest catalog, for answers that combine the catalog with a group's shard.

        The two may be led by different nodes. The metadata shard's leader first proves what is committed, and
        redirects to the leader of the group's shard, which waits until its catalog has that.
        """
        metadata, index = self._node.metadata, known_index
        if not index:
            await self.proven(metadata, self.proof(request, metadata))
            index = metadata.commit_index
            leader = self._leader(shard)
            if leader.node_id != self._node.info.node_id:
                raise _sent_on(shard, leader, f"{request.path_qs}&{CATALOG_INDEX}={index}")
        committed = await self._committed(metadata, index, self._settings.held_reply_timeout_ms)
        if not committed or self._node.catalog.version < index:
            message = f"this node has not applied the metadata log up to index {index} yet"
            raise HttpError(503, "NOT_COMMITTED", message, "try again")

    async def in_slices(self, work: Generator[None, None, T]) -> T:
        """Return the result of the work; its first step is done in this turn."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._slices.run(_settling(work, outcome), lambda: not outcome.done())
        return await outcome

    async def json(self, answer: Json) -> web.Response:
        """Return a response for a long answer."""
        return web.Response(text=await self.in_slices(json_text(answer)), content_type="application/json")

    async def read(
        self,
        request: web.Request,
        shard: AnyShardRuntime,
        consistent: int,
        answer: Generator[None, None, Json],
    ) -> Json:
        """Return what was read of a shard once it may be shown: committed, and proven if `consistent`."""
        proof = self.proof(request, shard) if consistent else None
        machine, found = shard.machine, await self.in_slices(answer)
        if proof is not None:
            await self.proven(shard, proof)
        await self.as_of(shard, machine, found["as_of_index"])
        return found

    async def _committed(self, shard: AnyShardRuntime, index: int, wait_ms: int) -> bool:
        if shard.commit_index >= index:
            return True
        reached = asyncio.get_running_loop().create_future()

        def reach() -> None:
            if not reached.done():
                reached.set_result(None)

        timer = shard.when_committed(index, reach)
        try:
            await asyncio.wait_for(reached, wait_ms / 1000)
        except TimeoutError:
            return False
        finally:
            timer.cancel()
        return True

    # One method per route.

    async def page(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return page(self._node.known_nodes)

    async def healthz(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"status": "ok"})

    async def readyz(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        reasons = reads.not_ready(self._node)
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    async def metrics(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        counted = [
            (shard, await self.in_slices(shard.machine.counting()))
            for shard in self._node.shards
            if shard.is_ready
        ]
        counts = {shard.shard: counts for shard, counts in counted if shard.is_ready}  # may have lost one
        return web.Response(body=self._metrics.render(counts), content_type="text/plain", charset="utf-8")

    async def cluster(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        document = reads.cluster(self._node, self._release)
        return web.json_response(document | {"launcher": self._launcher.is_there()})

    async def topics(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        node = self._node
        answer = await self.read(request, node.metadata, given["consistent"], reads.topics(node))
        return await self.json(answer)

    async def groups(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        machines = [shard.machine for shard in self._node.shards]
        answer = await self.in_slices(reads.groups(self._node, given["after"], given["limit"]))
        for shard, machine, read in zip(self._node.shards, machines, answer["as_of"], strict=True):
            await self.as_of(shard, machine, read["as_of_index"])
        return await self.json(answer)

    async def group(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        node, group_id = self._node, given["group_id"]
        shard = node.shard_for(group_id)
        answer = await self.read(request, shard, given["consistent"], reads.group(node, group_id))
        if answer["group"] is None:
            raise reads.no_group(group_id)
        return await self.json(answer)

    async def group_offsets(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        """Answer where the messages are: on the metadata shard's leader, if it can be asked."""
        node, context, group_id = self._node, self._kafka.context, given["group_id"]
        leader = node.controller if context.scratch_log is not None else None
        if leader is not None and leader.http_port and leader.node_id != node.info.node_id:
            raise _sent_on(node.metadata, leader, request.path_qs)
        answer = reads.group_offsets(node, context, group_id)
        return await self.json(await self.read(request, node.shard_for(group_id), 0, answer))

    async def group_events(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        shard = self._node.shard_for(given["group_id"])
        reads.check_readable(shard)
        last = request.headers.get("Last-Event-ID", "")
        after = int(last) if last.isdecimal() else given["after"]
        with self._waits("TOO_MANY_FEEDS", "too many live feeds and long polls are open already"):
            return await self.feeds.serve(request, shard, given["group_id"], after)

    async def _group_text(self, shard: AnyShardRuntime, group_id: str) -> tuple[str, float]:
        """Return a group as JSON, also one that does not exist, once what it shows is committed.

        The other value is how long the work took, in seconds, without the time that it waited.
        """
        timed = Timed(asyncio.get_running_loop().time)
        machine, found = shard.machine, await self.in_slices(timed.run(reads.group(self._node, group_id)))
        await self.as_of(shard, machine, found["as_of_index"])
        text = await self.in_slices(timed.run(json_text(found)))
        return text, timed.spent

    async def group_configs(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        node, group_id = self._node, given["group_id"]
        shard, consistent = node.shard_for(group_id), given["consistent"]
        if consistent:
            await self._newest_catalog(request, shard, given[CATALOG_INDEX])
        answer = await self.read(request, shard, consistent, reads.group_configs(node, group_id))
        return web.json_response(answer)

    async def transfer(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        shard = reads.shard_named(self._node, given["shard"])
        answer = await leadership.transfer(self._node, shard, given["to"], str(request.remote))
        return web.json_response(answer)

    async def undo_transfer(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        shard = reads.shard_named(self._node, given["shard"])
        return web.json_response(await leadership.undo_transfer(self._node, shard, str(request.remote)))

    async def drain(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._drain(request, given["node"], is_drained=True)

    async def undrain(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._drain(request, given["node"], is_drained=False)

    async def _drain(self, request: web.Request, node_id: int, *, is_drained: bool) -> web.StreamResponse:
        asker = str(request.remote)
        return web.json_response(
            await leadership.drain(self._node, node_id, is_drained=is_drained, asker=asker)
        )

    async def run_node(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        asker = str(request.remote)
        return web.json_response(await self._launcher.run(given["command"], given["node"], asker))

    async def upgrade(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(await writes.upgrade(self._node, str(request.remote)))

    async def faults(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(writes.faults(self._kafka))

    async def add_fault(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(writes.add_fault(self._kafka, given, str(request.remote)))

    async def clear_faults(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(writes.clear_faults(self._kafka, None, str(request.remote)))

    async def clear_fault(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(writes.clear_faults(self._kafka, given["id"], str(request.remote)))

    async def advance_clock(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        asker = str(request.remote)
        return web.json_response(writes.advance_clock(self._node, self._kafka, given["advance_ms"], asker))

    async def open_lease(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._leases.open(request, given, self.in_slices)

    async def acknowledge_lease(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(self._leases.acknowledge(request, given))

    async def close_lease(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(await self._leases.close(request, given))

    async def openapi(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(self._document)

    async def log(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        shard = reads.shard_named(self._node, given["shard"])
        first = given["from"] = max(1, given["from"])
        if shard.commit_index < first and given["wait_ms"]:
            await self._poll(shard, first, given["wait_ms"])
        return await self._files.log(request, shard, given)

    async def snapshot(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._files.snapshot(request, reads.shard_named(self._node, given["shard"]))

    async def evidence(self, request: web.Request, given: dict[str, Any]) -> web.StreamResponse:
        return await self._files.evidence(request, self._node.evidence, given)

    async def _poll(self, shard: AnyShardRuntime, index: int, wait_ms: int) -> None:
        with self._waits("TOO_MANY_POLLS", "too many long polls are waiting already"):
            await self._committed(shard, index, wait_ms)

    @contextmanager
    def _waits(self, error: str, message: str) -> Iterator[None]:
        """Count a request among those that wait; HttpError 429 if there are too many."""
        if self._waiting >= self._settings.http_waiting_max:
            raise busy(error, message)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


def _settling(work: Generator[None, None, T], outcome: asyncio.Future[T]) -> Iterator[None]:
    """Do the work and pass its result or exception on, unless the caller has gone."""
    try:
        value = yield from work
    except Exception as error:
        if not outcome.done():
            outcome.set_exception(error)
    else:
        if not outcome.done():
            outcome.set_result(value)


def _of_aiohttp(error: web.HTTPException) -> HttpError:
    hints = {
        404: "GET /v1/openapi.json lists all paths",
        405: "GET /v1/openapi.json lists all methods",
        413: "send a small JSON object, or no body",
    }
    word = error.reason.upper().replace(" ", "_")
    return HttpError(error.status, word, f"{error.status} {error.reason}", hints.get(error.status, ""))
