"""Live feeds of groups as server-sent events: what the log says about one group, and how the group stands.

    start   the first index that is sent, and when it was written; nothing is left out from there on
    entry   a committed entry with its records about the group, offsets left out, or with the start of a term
            of its shard; its id is its Raft index. Members of a classic group come with what they were
            `assigned`
    group   the group as `GET /v1/groups/ID` answers, soon after a change, and now and then without one
    alive   nothing has happened for `ALIVE_S`

Ids are the same on every node, so a reader that names the last one it got goes on at any node, and neither
misses nor repeats an entry.

Invariants: a shard's log is read once and a group's view is made once for all readers, at a bounded rate
(`GATHER_S`, `VIEW_SHARE`). No reader has a buffer: what it has not taken is among the newest entries of the
group, `RECENT_BYTES` at most, and a reader that falls behind these is disconnected.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from typing import Final

from aiohttp import web

from cluster.http.file_server import LARGE_ENTRY_BYTES, FileServer, in_thread, taken
from cluster.http.node_view import Json
from cluster.http.reads import shard_name
from cluster.http.routes import HttpError
from cluster.runtime.shard_runtime import AnyShardRuntime
from coordinator.views import classic_assigned
from raftlog.env.errors import RaftlogError
from raftlog.storage.frames import Frame
from records import (
    GroupMetadataValue,
    RawRecord,
    RecordsError,
    RecordType,
    cause_to_json,
    decode_cause,
    decode_value,
    group_id_of,
    iter_records,
    record_to_json,
)

LOG = logging.getLogger("quorate.http")

HISTORY_ENTRIES: Final = 20_000
"""Entries of the shard that are searched for a new reader, or for one that was away: about 4 MB."""

CATCH_UP_MAX: Final = 2
"""Readers that get the past at once; the others, whose streams have begun, wait for their turn."""

GATHER_S: Final = 0.25
"""Time for which commits are gathered before the log is read."""

RECENT_BYTES: Final = 1 << 21
"""Bytes of a group's newest events that are kept for readers that are behind."""

ENTRY_BYTES: Final = 1 << 19
"""Bytes of records above which an entry is sent without them: that of some five thousand members at once."""

VIEW_S: Final = 1.0
VIEW_QUIET_S: Final = 2.0
"""Shortest and longest pause between two views of a group; only a view tells of heartbeats."""

VIEW_SHARE: Final = 0.01
VIEW_BYTES_S: Final = 1 << 16
"""Share of a core, and bytes a second for each reader, that the views of one group may take."""

FIRST_VIEW_S: Final = 2.0
ALIVE_S: Final = 5.0
COMMIT_WAIT_MS: Final = 60_000

OFFSETS: Final = frozenset(
    {
        RecordType.OFFSET_COMMIT_LEGACY,
        RecordType.OFFSET_COMMIT,
        RecordType.PENDING_OFFSET,
        RecordType.TRANSACTION,
        RecordType.TRANSACTIONS_RESOLVED,
    }
)

View = Callable[[AnyShardRuntime, str], Awaitable[tuple[str, float]]]
"""Returns a group as JSON once what it shows is committed, and the seconds of work; raises HttpError."""

Committed = Callable[[AnyShardRuntime, int, int], Awaitable[bool]]
"""Waits until an index of a shard is committed, for so many ms at most."""


class _GroupFeed:
    """The state that the readers of one group share."""

    def __init__(self, looked: int) -> None:
        self.num_readers = 0
        self.complete_after = looked
        """Every event after this index, up to the newest, is in `recent`."""
        self.recent: deque[tuple[int, bytes]] = deque()
        self.view = b""
        self.num_views = 0
        self.news = asyncio.Event()
        self.changed = asyncio.Event()
        self.viewing: asyncio.Task[None] | None = None
        self.has_ended = False
        self._num_bytes = 0

    def add(self, index: int, event: bytes) -> None:
        self.recent.append((index, event))
        self._num_bytes += len(event)
        while self._num_bytes > RECENT_BYTES:
            self.complete_after, dropped = self.recent.popleft()
            self._num_bytes -= len(dropped)
        self.changed.set()
        self.tell()

    def tell(self) -> None:
        """Wake every reader."""
        self.news.set()
        self.news = asyncio.Event()

    def end(self) -> None:
        self.has_ended = True
        self.tell()


class _ShardFeed:
    """Reads the log of one shard for the groups that are watched."""

    def __init__(self, shard: AnyShardRuntime) -> None:
        self.shard = shard
        self.looked: int = shard.commit_index
        self.groups: dict[str, _GroupFeed] = {}
        self.reading: asyncio.Task[None] | None = None


class GroupFeeds:
    """The feeds of a node."""

    def __init__(self, files: FileServer, view: View, committed: Committed) -> None:
        self._files = files
        self._view = view
        self._committed = committed
        self._shards: dict[int, _ShardFeed] = {}
        self._catching_up = asyncio.Semaphore(CATCH_UP_MAX)

    async def serve(
        self, request: web.Request, shard: AnyShardRuntime, group_id: str, after: int | None
    ) -> web.StreamResponse:
        """Send events until the reader has gone, is too slow, or the node stops."""
        response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        if request.method == "HEAD":
            return response
        feed, group = self._join(shard, group_id)
        try:
            first, position = await self._first(feed, group, after)
            from_ms = await self._written_ms(shard, first) if first <= position else None
            start = {"shard": shard.shard, "from_index": first, "from_ms": from_ms}
            await response.prepare(request)
            await taken(request, response.write(_event("start", start)))
            num_views = await _first_view(request, response, group)
            if first <= position:
                async with self._catching_up:
                    await self._catch_up(request, response, shard, group_id, first, position)
            await _follow(request, response, group, position, num_views)
        except (KeyError, RaftlogError) as error:
            LOG.warning("a live feed of %s ends: %s", shard_name(shard), error)
        finally:
            self._leave(feed, group_id)
        return response

    async def end(self, _app: web.Application) -> None:
        """End all streams: the node stops."""
        for feed in self._shards.values():
            for group in feed.groups.values():
                group.end()

    # Readers come and go.

    def _join(self, shard: AnyShardRuntime, group_id: str) -> tuple[_ShardFeed, _GroupFeed]:
        tasks = asyncio.get_running_loop()
        feed = self._shards.get(shard.shard)
        if feed is None:
            feed = self._shards[shard.shard] = _ShardFeed(shard)
            feed.reading = tasks.create_task(self._read(feed))
        group = feed.groups.get(group_id)
        if group is None:
            group = feed.groups[group_id] = _GroupFeed(feed.looked)
            group.viewing = tasks.create_task(self._look(shard, group_id, group))
        group.num_readers += 1
        return feed, group

    def _leave(self, feed: _ShardFeed, group_id: str) -> None:
        group = feed.groups[group_id]
        group.num_readers -= 1
        if group.num_readers:
            return
        del feed.groups[group_id]
        assert group.viewing is not None
        group.viewing.cancel()
        if not feed.groups and self._shards.get(feed.shard.shard) is feed:
            self._forget(feed)

    def _forget(self, feed: _ShardFeed) -> None:
        del self._shards[feed.shard.shard]
        assert feed.reading is not None
        feed.reading.cancel()

    async def _first(self, feed: _ShardFeed, group: _GroupFeed, after: int | None) -> tuple[int, int]:
        """Return the first index to send, and the one after which `recent` has everything for this reader."""
        position = feed.looked
        if after is not None and after >= group.complete_after:
            return after + 1, after
        first = max(1, position - HISTORY_ENTRIES + 1, 0 if after is None else after + 1)
        log = feed.shard.replica.log
        return (max(first, await in_thread(log.first_kept)) if first < log.live_from else first), position

    # One reader.

    async def _written_ms(self, shard: AnyShardRuntime, index: int) -> int | None:
        """Return when an entry was written: from then on the reader knows the group."""
        async with aclosing(self._files.frames(shard, index, 1)) as frames:
            async for frame in frames:
                return frame.timestamp_ms
        return None

    async def _catch_up(
        self,
        request: web.Request,
        response: web.StreamResponse,
        shard: AnyShardRuntime,
        group_id: str,
        first: int,
        last: int,
    ) -> None:
        """Send what the log says of the group between two indexes."""
        while first <= last:
            async with aclosing(self._files.frames(shard, first, last - first + 1)) as frames:
                async for frame in frames:
                    first = frame.index + 1
                    for raws in _about(frame, {group_id}).values():
                        await taken(request, response.write(await _entry(frame, raws)))

    # Once for all readers.

    async def _read(self, feed: _ShardFeed) -> None:
        """Follow the log of a shard; if it cannot be read, all its readers are sent away."""
        try:
            while True:
                await self._committed(feed.shard, feed.looked + 1, COMMIT_WAIT_MS)
                await asyncio.sleep(GATHER_S)
                async with aclosing(
                    self._files.frames(feed.shard, feed.looked + 1, HISTORY_ENTRIES)
                ) as frames:
                    async for frame in frames:
                        about = _about(frame, feed.groups)
                        feed.looked = frame.index  # in this turn: who joins later reads it from the log
                        for group_id, raws in about.items():
                            event = await _entry(frame, raws)
                            if group := feed.groups.get(group_id):
                                group.add(frame.index, event)
        except (KeyError, RaftlogError, RecordsError) as error:
            LOG.warning("the live feeds of %s end: %s", shard_name(feed.shard), error)
            self._shards.pop(feed.shard.shard, None)
            for group in feed.groups.values():
                group.end()

    async def _look(self, shard: AnyShardRuntime, group_id: str, group: _GroupFeed) -> None:
        """Make views of a group: the more one costs, the longer the pause after it."""
        while True:
            group.changed.clear()
            try:
                text, work_s = await self._view(shard, group_id)
            except HttpError:
                text, work_s = "", 0.0  # this node is catching up; its readers keep what they have
            if text:
                group.view = f"event: group\ndata: {text}\n\n".encode()
                group.num_views += 1
                group.tell()
            pause_s = max(VIEW_S, work_s / VIEW_SHARE, len(text) / VIEW_BYTES_S)
            await asyncio.sleep(pause_s)
            try:
                await asyncio.wait_for(group.changed.wait(), max(0.0, VIEW_QUIET_S - pause_s))
            except TimeoutError:
                continue


async def _first_view(request: web.Request, response: web.StreamResponse, group: _GroupFeed) -> int:
    """Send a view before the entries, if there soon is one, for the topics' names; return the number sent."""
    if not group.num_views:
        with suppress(TimeoutError):
            await asyncio.wait_for(group.news.wait(), FIRST_VIEW_S)
    num_views = group.num_views
    if num_views:
        await taken(request, response.write(group.view))
    return num_views


async def _follow(
    request: web.Request, response: web.StreamResponse, group: _GroupFeed, position: int, num_views: int
) -> None:
    """Send what is new after `position`, and each view after those that were sent."""
    while not group.has_ended:
        news = group.news
        if position < group.complete_after:
            LOG.warning("closing the live feed of %s, which reads too slowly", request.remote)
            if request.transport is not None:
                request.transport.abort()
            return
        pieces = [event for index, event in group.recent if index > position]
        if pieces:
            position = group.recent[-1][0]
        if group.num_views > num_views:
            num_views = group.num_views
            pieces.append(group.view)
        if not pieces:
            try:
                await asyncio.wait_for(news.wait(), ALIVE_S)
                continue
            except TimeoutError:
                pieces.append(_event("alive", {}))
        await taken(request, response.write(b"".join(pieces)))


def _about(frame: Frame, watched: Collection[str]) -> dict[str, list[RawRecord]]:
    """Return, by watched group, the records of an entry about it; an entry that opens a term is about all."""
    found: dict[str, list[RawRecord]] = {}
    for raw in iter_records(frame.body):
        if raw.type in OFFSETS:
            continue
        if raw.type == RecordType.TERM_START:
            for one in watched:
                found.setdefault(one, []).append(raw)
        elif (group_id := group_id_of(raw)) is not None and group_id in watched:
            found.setdefault(group_id, []).append(raw)
    return found


async def _entry(frame: Frame, raws: list[RawRecord]) -> bytes:
    num_bytes = sum(len(raw.key) + len(raw.value or b"") for raw in raws)
    if num_bytes <= LARGE_ENTRY_BYTES:
        return _encoded(frame, raws)
    if num_bytes > ENTRY_BYTES:
        return _encoded(frame, [], left_out=len(raws))
    return await in_thread(_encoded, frame, raws)


def _encoded(frame: Frame, raws: list[RawRecord], left_out: int = 0) -> bytes:
    entry = {
        "index": frame.index,
        "term": frame.term,
        "timestamp_ms": frame.timestamp_ms,
        "cause": cause_to_json(decode_cause(frame.body)),
        "records": [_record(raw) for raw in raws],
        "left_out": left_out,
    }
    return f"id: {frame.index}\n".encode() + _event("entry", entry)


def _record(raw: RawRecord) -> Json:
    """Return a record as JSON; a classic member's partitions stand for the bytes that clients wrote."""
    shown = record_to_json(raw)
    if raw.type == RecordType.GROUP_METADATA and shown.get("value"):
        group: GroupMetadataValue = decode_value(raw)
        for member, known in zip(shown["value"]["members"], group.members, strict=True):
            del member["subscription"], member["assignment"]
            member["assigned"] = classic_assigned(known, group)
    return shown


def _event(name: str, data: Json) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
