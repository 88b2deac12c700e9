"""Commits that follow each other on a connection, served in one call.

A client that pipelines commits sends many in one read. What a request costs beside its own decision (its
place in the queue of replies, its header, the clock, the look for room, who the member is and what it may do)
is then spent once for a run of them. Each still has a decision, an entry and a reply of its own.

Invariants: a run is of one client, group and version; it is short, so that it takes less than a share, and
none of its commits takes several decisions. A frame that cannot be decoded ends the run before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final

from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import FAILED, Exchange, Requester
from cluster.kafka.waiting import cut_waits_short
from wire.apis import ApiKey
from wire.errors import ErrorCode, MalformedFrame, UnsupportedApi
from wire.protocol import decode_body, decode_request, encode_response, encode_response_in_pieces
from wire.refusals import refuse

LOG = logging.getLogger("quorate.kafka")

COMMITS_MAX: Final = 32
"""Commits in a run: about half a millisecond."""

RUN_BYTES_MAX: Final = 4_096
"""Bytes of their frames: a commit of a hundred partitions takes as long as some twenty small ones."""

_COMMIT = ApiKey.OFFSET_COMMIT.to_bytes(2, "big")
_CORRELATION_BEGIN, _CORRELATION_END = 4, 8
_correlation_id = Struct(">i").unpack_from


class RunExchange(Exchange):
    """The exchange of a run: its body is the list of the responses, and their frames leave together."""

    __slots__ = ("correlation_ids",)

    def __init__(self, connection: Requester, started_ms: float, payloads: list[bytes]) -> None:
        super().__init__(connection, started_ms)
        self.num_requests = len(payloads)
        self.asked_bytes = sum(map(len, payloads))
        self.correlation_ids = [_correlation_id(payload, _CORRELATION_BEGIN)[0] for payload in payloads]

    def fail(self, body: Any, code: ErrorCode, message: str = FAILED) -> None:
        if self.connection is not None and not self.is_answered:
            self.reply([refuse(self.api_key, self.api_version, one, code, message) for one in body])

    def _encoding(self, body: Any, deliver: Callable[[bytes], None]) -> Iterator[None]:
        try:
            frames = []
            for correlation_id, one in zip(self.correlation_ids, body, strict=True):
                frames.append(
                    (
                        yield from encode_response_in_pieces(
                            self.api_key, self.api_version, correlation_id, one
                        )
                    )
                )
                self._count_errors(one)
            deliver(b"".join(frames))
        except Exception:
            self._failed()

    def _encode(self, body: Any) -> None:
        try:
            api_key, version = self.api_key, self.api_version
            frames = [
                encode_response(api_key, version, correlation_id, one)
                for correlation_id, one in zip(self.correlation_ids, body, strict=True)
            ]
            for one in body:
                self._count_errors(one)
            self.send(b"".join(frames))
        except Exception:
            self._failed()


def commits_at(frames: list[bytes], at: int, most: int) -> list[bytes]:
    """Return the commits from `at` on that may be a run; fewer than two are none."""
    end, num_bytes = at, 0
    stop = min(len(frames), at + min(most, COMMITS_MAX))
    while end < stop and frames[end].startswith(_COMMIT):
        num_bytes += len(frames[end])
        if num_bytes > RUN_BYTES_MAX:
            break
        end += 1
    return frames[at:end] if end - at > 1 else []


def serve_commits(
    context: ListenerContext, connection: Requester, payloads: list[bytes], now_ms: float
) -> int:
    """Serve the first of these commits, as far as they are a run; return how many.

    0 if the first cannot be decoded, or takes several decisions."""
    try:
        header, first = decode_request(payloads[0], context.served)
    except (MalformedFrame, UnsupportedApi):
        return 0
    if context.node.is_in_parts(first, len(payloads[0])):
        return 0
    bodies = [first, *_like(context, payloads, header.body_offset, header.api_version, first)]
    run = payloads[: len(bodies)]
    exchange = RunExchange(connection, now_ms, run)
    exchange.api_key, exchange.api_version = ApiKey.OFFSET_COMMIT, header.api_version
    exchange.client = connection.client_named(header.client_id)
    connection.uses(first.group_id)
    connection.queue(exchange)
    context.counters.requests[ApiKey.OFFSET_COMMIT] += len(run)
    if connection.deferred:
        cut_waits_short(connection, ApiKey.OFFSET_COMMIT)
    try:
        context.node.submit_run(
            ApiKey.OFFSET_COMMIT, header.api_version, bodies, exchange.client, exchange.reply
        )
    except Exception:
        LOG.exception("OffsetCommit version %d failed; answering UNKNOWN_SERVER_ERROR", header.api_version)
        exchange.fail(bodies, ErrorCode.UNKNOWN_SERVER_ERROR)
    return len(run)


def _like(
    context: ListenerContext, payloads: list[bytes], body_offset: int, version: int, first: Any
) -> Iterator[Any]:
    """Decode the commits after the first as long as they are like it up to the group id."""
    frame = payloads[0]
    group_id = first.group_id.encode()
    group_end = frame.index(group_id, body_offset) + len(group_id)
    head, same = frame[:_CORRELATION_BEGIN], frame[_CORRELATION_END:group_end]
    for payload in payloads[1:]:
        if not (payload.startswith(head) and payload.startswith(same, _CORRELATION_END)):
            return
        try:
            body = decode_body(ApiKey.OFFSET_COMMIT, version, payload, body_offset)
        except MalformedFrame:
            return
        if body.group_id != first.group_id or context.node.is_in_parts(body, len(payload)):
            return  # the bytes of a short group id also occur in its length
        yield body
