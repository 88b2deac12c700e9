"""The files that HTTP serves: the committed log, its snapshot, the notes beside it.

It is for readers of a whole history, on a node that others work with. Invariants: a reader, however
fast, gets the loop for one slice at a time and then waits its turn; files that may be large or cold are read
in a thread; at most `READERS_MAX` readers are served at once, and every answer has a bound. The cheapest
format is `frames`, the bytes as they are on disk: nothing is decoded here, and the reader checks the CRCs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import msgpack
from aiohttp import web

from cluster.http.reads import shard_name
from cluster.http.routes import HttpError
from cluster.runtime.shard_runtime import AnyShardRuntime
from raftlog.env.errors import RaftlogError
from raftlog.storage.evidence import Evidence, about, notes_in
from raftlog.storage.frames import HEADER, HEADER_BYTES, Frame, frames_in
from records import body_to_json

LOG = logging.getLogger("quorate.http")

T = TypeVar("T")

SLICE_MS = 1.0
"""Milliseconds of encoding before others get the loop."""

REST_S = 0.001
"""Pause after every slice, taken by one reader at a time: together they take at most half of a core for
texts, and a quarter for frames, which are then served faster than they can be decoded."""

SLICE_BYTES = 1 << 16
"""Bytes of a file per turn: some ten microseconds to read and send."""

ANSWER_MAX_BYTES = 1 << 20
"""Bytes of frames in one answer of the log, before encoding."""

NOTES_MAX_BYTES = 4 << 20
"""Bytes of notes in one answer: half of what a node keeps."""

NOTES_PER_LOOK = 64
"""Notes to search between two readings of the clock: about a tenth of a millisecond."""

READERS_MAX = 4
"""Answers from files at once: they share the loop with heartbeats, and two keep a core busy."""

READERS_WAIT_S = 1.0
"""Longest wait for a place: readers that one commit wakes all at once need milliseconds."""

RETRY_AFTER_S = 1

UNREAD_S = 10.0
"""A client that reads nothing of its answer for this long is disconnected: it holds a place at work."""

LARGE_ENTRY_BYTES = 1 << 16
"""Larger entries (up to 16 MiB: one commit of 100,000 partitions) are encoded in a thread."""

MEDIA = {
    "jsonl": "application/x-ndjson",
    "msgpack": "application/x-msgpack",
    "frames": "application/octet-stream",
}
VERIFY_HINT = "`quorate log verify` on a copy of the node's directory lists all damage"


def busy(error: str, message: str) -> HttpError:
    """Return a 429 with the time of the next attempt, because too many requests of this kind are at work."""
    return HttpError(429, error, message, "try again later", retry_after_s=RETRY_AFTER_S)


async def taken(request: web.Request, sending: Awaitable[object]) -> None:
    """Wait until the client has read enough for `sending` to continue, `UNREAD_S` at most."""
    try:
        await asyncio.wait_for(sending, UNREAD_S)
    except TimeoutError:
        LOG.warning("closing the HTTP connection of %s, which does not read the response", request.remote)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read") from None


class FileServer:
    """Serves files to a few readers at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(READERS_MAX)
        self._resting = asyncio.Lock()

    async def log(
        self, request: web.Request, shard: AnyShardRuntime, given: Mapping[str, Any]
    ) -> web.StreamResponse:
        """Send the committed entries from `given["from"]` on, as far as there are any."""
        async with self._place():
            pieces = self._pieces(shard, given["from"], given["limit"], given["format"])
            async with aclosing(pieces):
                piece = await _first(pieces, shard, given["from"])
                response = web.StreamResponse(headers={"Quorate-Commit-Index": str(shard.commit_index)})
                response.content_type = MEDIA[given["format"]]
                await response.prepare(request)
                while piece:
                    await taken(request, response.write(piece))
                    try:
                        piece = await anext(pieces, b"")
                    except (KeyError, RaftlogError):
                        break  # reported to a reader that asks from there
        return response

    async def snapshot(self, request: web.Request, shard: AnyShardRuntime) -> web.StreamResponse:
        """Send the snapshot file; a newer one that replaces it meanwhile changes nothing here."""
        async with self._place():
            try:
                source = await in_thread(shard.replica.log.snapshot)
            except FileNotFoundError:
                hint = "its log is complete without one"
                raise HttpError(
                    404, "NO_SNAPSHOT", f"{shard_name(shard)} has no snapshot yet", hint
                ) from None
            except RaftlogError as error:
                raise HttpError(500, "DAMAGED", str(error), VERIFY_HINT) from None
            try:
                response = web.StreamResponse()
                response.content_type = MEDIA["frames"]
                response.content_length = source.size
                await response.prepare(request)
                for at in range(0, source.size, SLICE_BYTES):
                    await taken(request, response.write(await in_thread(source.chunk, at, SLICE_BYTES)))
                    await self._rest()
            finally:
                source.close()
        return response

    async def evidence(
        self, request: web.Request, noted: Evidence, given: Mapping[str, Any]
    ) -> web.StreamResponse:
        """Send the newest notes of a group, or of all groups, oldest first."""
        async with self._place():
            noted.flush()
            newest = _Newest(given["limit"])
            needle = about(given["group"]) if given["group"] else b""
            for data in await in_thread(noted.contents):
                async for payload, _ in self._in_slices(notes_in(data), NOTES_PER_LOOK):
                    if needle in payload:
                        newest.take(payload)
            response = web.StreamResponse(headers={"Quorate-Left-Out": str(newest.left_out)})
            response.content_type = MEDIA[given["format"]]
            await response.prepare(request)
            piece = bytearray()
            async for note in self._in_slices(iter(newest.notes), NOTES_PER_LOOK):
                piece += note if given["format"] == "msgpack" else _json_note(note)
                if len(piece) >= SLICE_BYTES:
                    await taken(request, response.write(bytes(piece)))
                    piece.clear()
            await taken(request, response.write(bytes(piece)))
        return response

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._places.acquire(), READERS_WAIT_S)
        except TimeoutError:
            raise busy("TOO_MANY_READERS", f"{READERS_MAX} other requests are reading files") from None
        try:
            yield
        finally:
            self._places.release()

    async def _pieces(
        self, shard: AnyShardRuntime, first: int, limit: int, form: str
    ) -> AsyncGenerator[bytes, None]:
        """Yield the encoded entries of one answer, a slice at a time; KeyError if they were removed."""
        slices = self._slices(shard, first, limit)
        async with aclosing(slices):
            async for data in slices:
                if form == "frames":
                    yield data
                    continue
                encode = _msgpack_entry if form == "msgpack" else _json_entry
                piece = bytearray()
                async for frame in self._in_slices(iter(frames_in(data)), 1):
                    is_large = len(frame.body) > LARGE_ENTRY_BYTES
                    piece += await in_thread(encode, frame) if is_large else encode(frame)
                yield bytes(piece)

    async def frames(self, shard: AnyShardRuntime, first: int, limit: int) -> AsyncGenerator[Frame, None]:
        """Yield the committed entries of one answer, a slice at a time; KeyError if they were removed."""
        slices = self._slices(shard, first, limit)
        async with aclosing(slices):
            async for data in slices:
                async for frame in self._in_slices(iter(frames_in(data)), 1):
                    yield frame

    async def _slices(self, shard: AnyShardRuntime, first: int, limit: int) -> AsyncGenerator[bytes, None]:
        """Yield whole committed frames: of the live log directly, of the archive in a thread.

        Others get the loop in between. Archived files never change and the snapshot's index only grows, so
        the thread needs no lock.
        """
        replica, archive, room = shard.replica, None, ANSWER_MAX_BYTES
        try:
            while room > 0 and limit > 0 and first <= shard.commit_index:
                if first < replica.log.live_from:
                    archive = archive or replica.log.archive()
                    data = await in_thread(archive.frames, first, SLICE_BYTES)
                else:
                    data = replica.log.read(first, SLICE_BYTES)
                data, count = _cut(data, limit)
                yield data
                first, limit, room = first + count, limit - count, room - len(data)
                if first <= shard.commit_index:
                    await self._rest()
        finally:
            if archive is not None:
                archive.close()

    async def _in_slices(self, items: Iterator[T], num_unlooked: int) -> AsyncIterator[T]:
        """Yield the same items, and let others use the loop whenever `SLICE_MS` is over."""
        loop = asyncio.get_running_loop()
        slice_end = loop.time() + SLICE_MS / 1000
        for number, item in enumerate(items, 1):
            yield item
            if number % num_unlooked == 0 and loop.time() > slice_end:
                await self._rest()
                slice_end = loop.time() + SLICE_MS / 1000

    async def _rest(self) -> None:
        async with self._resting:
            await asyncio.sleep(REST_S)


class _Newest:
    """The newest notes within the bounds on their number and bytes."""

    def __init__(self, num_max: int) -> None:
        self.notes: deque[bytes] = deque()
        self.left_out = 0
        self._num_max = num_max
        self._bytes = 0

    def take(self, note: bytes) -> None:
        self.notes.append(note)
        self._bytes += len(note)
        while len(self.notes) > self._num_max or self._bytes > NOTES_MAX_BYTES:
            self._bytes -= len(self.notes.popleft())
            self.left_out += 1


async def _first(pieces: AsyncIterator[bytes], shard: AnyShardRuntime, first: int) -> bytes:
    """Return the first piece of an answer, while the request can still be refused."""
    try:
        return await anext(pieces, b"")
    except RaftlogError as error:
        raise HttpError(500, "DAMAGED", str(error), VERIFY_HINT) from None
    except KeyError:
        kept = await in_thread(shard.replica.log.first_kept)
    if kept <= first:
        message = f"entry {first} of {shard_name(shard)} is being moved to the archive"
        raise HttpError(503, "MOVING", message, "try again", retry_after_s=RETRY_AFTER_S)
    raise HttpError(
        410,
        "REMOVED",
        f"entry {first} of {shard_name(shard)} was removed by retention",
        f"read from {kept} on; log.archive.retention.* sets what is kept, and the snapshot has the state "
        "before",
        first_index=kept,
    )


def _cut(data: bytes, limit: int) -> tuple[bytes, int]:
    """Return at most `limit` of these whole frames, and their number."""
    at, count = 0, 0
    while at < len(data) and count < limit:
        at += HEADER_BYTES + HEADER.unpack_from(data, at)[2]
        count += 1
    return data[:at], count


async def in_thread(fn: Callable[..., T], *args: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, fn, *args)


def _json_entry(frame: Frame) -> bytes:
    entry = {
        "index": frame.index,
        "term": frame.term,
        "timestamp_ms": frame.timestamp_ms,
        "entry": body_to_json(frame.body),
    }
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _msgpack_entry(frame: Frame) -> bytes:
    packed: bytes = msgpack.packb([frame.index, frame.term, frame.timestamp_ms, frame.body])
    return packed


def _json_note(note: bytes) -> bytes:
    return json.dumps(msgpack.unpackb(note), separators=(",", ":")).encode() + b"\n"
