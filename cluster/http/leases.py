"""Leases over HTTP: each open stream of events is a member of a group, for programs in any language.

The member is the client's own (`client.aio.leases`), beside the node: it reaches the group's coordinator over
Kafka's port, whichever node that is, and goes on through failovers. The stream is its sign of life. When the
reader has gone, or has not read for `UNREAD_S`, or its machine does not answer, the member leaves; when the
node is gone, its session ends.

Invariants: what must be given back is acknowledged by the reader only, or by the end of its stream. The
number of streams has a bound; what is queued for a slow reader is one event, beside the socket's buffers.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from client.core.errors import ConfigError, ConsumerError, IllegalState, KafkaError, TimedOut
from cluster.http.file_server import busy, taken
from cluster.http.node_view import HttpNode, Json
from cluster.http.reads import http_url
from cluster.http.routes import HttpError
from cluster.http.text import json_text
from cluster.kafka.listener import KafkaListener
from cluster.settings import Settings
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from client.aio.leases import Leases
    from client.core.leases import LeaseChange

JOIN_MS: Final = 10_000
"""Time for the coordinator to admit the member; the caller waits for the head of the answer so long."""

ALIVE_S: Final = 5.0
"""Without an event for so long, a comment is sent: proxies keep the stream, and a dead reader is noticed."""

DEAD_MS: Final = 20_000
"""A reader whose machine acknowledges nothing for so long is gone (Linux)."""

LEAVE_S: Final = 5.0
"""Longest wait for the coordinator when a member leaves."""

END_S: Final = 2.0
"""Longest wait for all readers when the node stops."""

TOPICS_MAX: Final = 1_000
"""Topics of one lease."""

LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address at which this machine reaches a port that is bound to all addresses."""

STATUS: Final = {
    ErrorCode.INVALID_GROUP_ID: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.UNSUPPORTED_VERSION: 503,
    ErrorCode.UNKNOWN_SERVER_ERROR: 503,
}
"""The status for an error of the coordinator; 409 for the others, which the group's state causes."""

InSlices = Callable[[Generator[None, None, str]], Awaitable[str]]


@dataclass(slots=True)
class _Stream:
    """An open lease."""

    leases: Leases
    unacknowledged: dict[int, LeaseChange] = field(default_factory=dict)


class LeaseServer:
    """The leases that are open at this node."""

    def __init__(self, node: HttpNode, settings: Settings, kafka: KafkaListener) -> None:
        self.num_streams = 0
        """Requests at work that are leases, also those that join."""
        self._node = node
        self._settings = settings
        self._kafka = kafka
        self._open: dict[str, _Stream] = {}
        self._joining: set[Leases] = set()
        """Members whose readers were told nothing yet."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def open(self, request: web.Request, given: Json, in_slices: InSlices) -> web.StreamResponse:
        """Join, and send events as long as the reader is there; HttpError if the member is not admitted."""
        if self._is_stopping:
            raise HttpError(503, "STOPPING", "this node stops", "open the lease at another node")
        members = self.num_streams + len(self._leaving)
        if members >= self._settings.http_leases_max:
            raise busy("TOO_MANY_LEASES", f"{members} leases are open, or leave (http.leases.max)")
        self.num_streams += 1
        try:
            loop = asyncio.get_running_loop()
            client = await loop.run_in_executor(None, importlib.import_module, "client.aio.leases")
            leases = self._made(client.Leases, given, str(request.remote))
            try:
                return await self._served(request, leases, given, in_slices)
            finally:
                self._leave(leases)
        finally:
            self.num_streams -= 1

    def acknowledge(self, request: web.Request, given: Json) -> Json:
        """Acknowledge a change; HttpError 404 if the lease is not open, 307 if another node has it."""
        stream = self._stream(request, given["lease"])
        if given["change"] is None:
            raise HttpError(400, "MISSING_FIELD", "the field 'change' is missing", "the event has it")
        change = stream.unacknowledged.pop(given["change"], None)
        if change is not None:
            stream.leases.acknowledge(change)
        return {"change": given["change"], "was_open": change is not None}

    async def close(self, request: web.Request, given: Json) -> Json:
        """Leave for good; HttpError 404 if the lease is not open, 307 if another node has it."""
        lease_id: str = given["lease"]
        leases = self._stream(request, lease_id).leases
        await asyncio.shield(self._in_task(leases.close(LEAVE_S, for_good=True)))
        return {"closed": lease_id}

    async def end_all(self) -> None:
        """Ask all readers to release everything, and end their streams: the node stops.

        The member of a reader that does not acknowledge in time does not leave, so that others get its
        partitions only after its session."""
        self._is_stopping = True
        streams = list(self._open.values())
        await asyncio.gather(
            *(leases.close(END_S) for leases in self._joining),
            *(stream.leases.release(END_S) for stream in streams),
        )
        await asyncio.gather(*(stream.leases.close(leaves=False) for stream in streams))
        while self._leaving:
            await asyncio.wait(self._leaving)

    # Inside.

    def _made(self, make: Callable[..., Leases], given: Json, remote: str) -> Leases:
        topics = [topic.strip() for topic in (given["topics"] or "").split(",") if topic.strip()]
        for name, value in (("group", given["group"]), ("topics", topics)):
            if not value:
                hint = 'send {"group": "…", "topics": "orders,bills"}'
                raise HttpError(400, "MISSING_FIELD", f"the field {name!r} is missing or empty", hint)
        if len(topics) > TOPICS_MAX:
            message = f"{len(topics)} topics; a lease has {TOPICS_MAX} at most"
            raise HttpError(400, "TOO_MANY_TOPICS", message, "open several leases")
        host, port = self._kafka.address
        host = LOOPBACK.get(host, host)
        settings = {
            "bootstrap_servers": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "client_id": f"http {remote}",
            "group_instance_id": given["instance_id"],
            "max_poll_interval_ms": given["release_timeout_ms"],
            "default_api_timeout_ms": JOIN_MS,
        }
        try:
            return make(given["group"], topics, {}, settings)
        except (ConfigError, IllegalState) as error:
            raise HttpError(400, "BAD_PARAMETER", str(error), "") from None

    async def _served(
        self, request: web.Request, leases: Leases, given: Json, in_slices: InSlices
    ) -> web.StreamResponse:
        self._joining.add(leases)
        try:
            await leases.__aenter__()
        except ConsumerError as error:
            raise _refused(error) from None
        finally:
            self._joining.discard(leases)
        member_id = leases.explain().member_id
        lease_id = f"{self._node.info.node_id}-{member_id}"
        stream = self._open[lease_id] = _Stream(leases)
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        _notice_death(request)
        try:
            await response.prepare(request)
            opened = {"lease": lease_id, "group": given["group"], "member_id": member_id}
            await taken(request, response.write(_event("opened", await in_slices(json_text(opened)))))
            async with aclosing(_events(stream)) as events:
                async for name, data in events:
                    piece = _event(name, await in_slices(json_text(data))) if name else b": alive\n\n"
                    await taken(request, response.write(piece))
        finally:
            del self._open[lease_id]
        return response

    def _leave(self, leases: Leases) -> None:
        self._in_task(leases.close(LEAVE_S, leaves=not self._is_stopping))

    def _in_task(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Leave in a task of its own: the request's may be cancelled, as its client has gone."""
        task = asyncio.get_running_loop().create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    def _stream(self, request: web.Request, lease_id: str) -> _Stream:
        stream = self._open.get(lease_id)
        if stream is not None:
            return stream
        number = lease_id.partition("-")[0]
        for info in self._node.nodes:
            if str(info.node_id) == number and info.node_id != self._node.info.node_id and info.http_port:
                message = f"node {info.node_id} has lease {lease_id[:100]!r}"
                location = http_url(info) + request.path_qs
                raise HttpError(307, "OTHER_NODE", message, "follow the redirect", location=location)
        hint = "a lease lives as long as its stream of events; open another one"
        raise HttpError(404, "NO_SUCH_LEASE", f"there is no open lease {lease_id[:100]!r}", hint)


async def _events(stream: _Stream) -> AsyncGenerator[tuple[str, Json], None]:
    """Yield the name and the data of each event; no name when nothing has happened for `ALIVE_S`."""
    leases = stream.leases
    waiting: asyncio.Task[LeaseChange] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(leases.next_change())
            done, _ = await asyncio.wait({waiting}, timeout=ALIVE_S)
            if not done:
                yield "", {}
                continue
            try:
                change = waiting.result()
            except IllegalState:
                yield "closed", {}
                return
            except ConsumerError as error:
                refused = _refused(error)
                yield "error", {**refused.body, "status": refused.status}
                return
            waiting = None
            if change.ended:
                stream.unacknowledged[change.number] = change
            yield _told(change)
    finally:
        if waiting is not None:
            waiting.cancel()


def _told(change: LeaseChange) -> tuple[str, Json]:
    """Return a change as an event's name and data."""
    partitions = [lease._asdict() for lease in change.gained or change.ended]
    if change.gained:
        return "gained", {"partitions": partitions}
    name = "lost" if change.is_lost else "release"
    return name, {"change": change.number, "partitions": partitions}


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def _refused(error: ConsumerError) -> HttpError:
    """Return the answer for an error of the member."""
    if isinstance(error, KafkaError):
        status = STATUS.get(ErrorCode(error.code), 409) if error.name in ErrorCode.__members__ else 409
        return HttpError(status, error.name, str(error), "`quorate docs leases` has the contract")
    if isinstance(error, TimedOut):
        return HttpError(503, "NOT_JOINED", str(error), "try again; /readyz shows whether the node is ready")
    return HttpError(503, "LEASE_ENDED", str(error), "open another lease")


def _notice_death(request: web.Request) -> None:
    """Let the kernel end the connection of a reader whose machine acknowledges nothing any more."""
    connection = request.transport.get_extra_info("socket") if request.transport is not None else None
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_MS)
