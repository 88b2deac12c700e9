"""The evidence file: facts that the log does not record, kept beside it to answer why something happened.

Four kinds of notes: requests that were refused, with the reason; work for a group that failed, such as its
assignor's; for each member the longest gap between two heartbeats in each minute; and requests that met a
fault set by an operator.  Unreplicated, bounded, never synced: it may lack its end after a crash, and
explanations then say "unknown".  Two files are used alternately: when one is full the other is started anew,
so at least half of `evidence_bytes_max` is always kept.

    per note: length u32, crc u32 (CRC32C of what follows), msgpack map {"kind", "at_ms", ...}

A failing write is logged once and notes are dropped; evidence never stops a node.

The newest refusal of each member is also kept in memory, for queries to the running node: a bounded number of
them, and only those since its start, because reading the file would take too long.
"""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
from crc32c import crc32c

from raftlog.env.errors import Corrupt
from raftlog.env.files import File, Files, join
from raftlog.env.host import Host

LOG = logging.getLogger("quorate.raftlog")

FILES = ("evidence.0", "evidence.1")
MINUTE_MS = 60_000
BUFFER_NOTES = 256
"""Notes held before they are written: a storm of refusals costs one write per this many."""
BUFFER_BYTES = 1 << 16
"""Bytes held before they are written, so that one write is a small part of either file."""
TEXT_CHARACTERS_MAX = 1024
"""At most this many characters of an id or a reason are kept: a note stays below 17 KiB."""
REASON_CHARACTERS_MAX = 256
"""At most this many characters of a reason in memory; only those that quote the client are longer."""
FLUSH_MS = 1000
GAPS_MAX = 100_000
"""Members whose gaps are kept per minute; gaps of further members are not noted."""
GAPS_PER_TURN = 1_000
"""Gaps of a past minute written per turn of the loop: about 2 ms."""

REFUSALS_MAX = 2_000
"""Members whose newest refusal is in memory: 1 MB, 5 MB with the longest ids, and quick to search."""

_HEAD = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A member's newest refused request; `times` counts refusals in a row with the same API and error."""

    at_ms: int
    api: int
    error: int
    reason: str
    member_id: str
    client: str
    times: int


class Evidence:
    """Writes the evidence; one per node."""

    def __init__(self, host: Host, path: str, bytes_max: int) -> None:
        self._host = host
        self._bytes_max = bytes_max // 2
        self._paths = [join(path, name) for name in FILES]
        self._place = 0
        self._file: File | None = None
        self._size = 0
        self._buffer: list[bytes] = []
        self._buffer_bytes = 0
        self._over: list[tuple[int, tuple[int, str, str], float]] = []
        self._gaps: dict[tuple[int, str, str], float] = {}
        self._minute = -1
        self._flush_queued = False
        self._broken = False
        self._refusals: OrderedDict[tuple[str, str], Refusal] = OrderedDict()

    def refused(
        self,
        *,
        api: int,
        error: int,
        reason: str,
        group_id: str = "",
        member_id: str = "",
        client: str = "",
        owned: dict[str, list[int]] | None = None,
    ) -> None:
        """Note that a request was refused: Kafka's API key and error code, and the reason in words.

        `owned` are the partitions by topic id that a heartbeat reported as owned; the caller bounds it.
        """
        said = {} if owned is None else {"owned": owned}
        self._note(
            "refused",
            api=api,
            error=error,
            reason=reason,
            group=group_id,
            member=member_id,
            client=client,
            **said,
        )
        if group_id:
            group_id, member_id = group_id[:TEXT_CHARACTERS_MAX], member_id[:TEXT_CHARACTERS_MAX]
            self._remember(group_id, member_id, api, error, reason, client)

    def trouble(self, group_id: str, said: str, *, work: str, member_id: str = "") -> None:
        """Note that work for a group failed and left no record: ``assign`` a target, ``resolve`` expressions.

        `member_id` is the member that was to do it, if any.
        """
        self._note("trouble", group=group_id, said=said, work=work, member=member_id)

    def fault(
        self,
        *,
        fault_id: int,
        action: str,
        api: int,
        error: int,
        delay_ms: int,
        throttle_ms: int,
        group_id: str,
        member_id: str,
        client: str,
    ) -> None:
        """Note that a request met a fault that an operator had set: ``action`` is what the fault does.

        `error` is Kafka's code, 0 unless the fault answers with an error.
        """
        self._note(
            "fault",
            fault=fault_id,
            action=action,
            api=api,
            error=error,
            delay_ms=delay_ms,
            throttle_ms=throttle_ms,
            group=group_id,
            member=member_id,
            client=client,
        )

    def _remember(
        self, group_id: str, member_id: str, api: int, error: int, reason: str, client: str
    ) -> None:
        known = self._refusals.pop((group_id, member_id), None)
        is_same = known is not None and (known.api, known.error) == (api, error)
        self._refusals[group_id, member_id] = Refusal(
            at_ms=self._host.wall_ms(),
            api=api,
            error=error,
            reason=reason[:REASON_CHARACTERS_MAX],
            member_id=member_id,
            client=client[:REASON_CHARACTERS_MAX],
            times=known.times + 1 if known is not None and is_same else 1,
        )
        if len(self._refusals) > REFUSALS_MAX:
            self._refusals.popitem(last=False)

    def refusals(self, group_id: str) -> list[Refusal]:
        """The newest refusal of each client of a group known since the start, newest first.

        These are its members and others that used the group id; one that named no member has the empty member
        id.
        """
        return [note for (of, _), note in reversed(self._refusals.items()) if of == group_id]

    def heartbeat_gap(self, shard: int, group_id: str, member_id: str, gap_ms: float) -> None:
        """Note a heartbeat that came `gap_ms` after the last one; the longest gap of each minute is kept."""
        minute = self._host.wall_ms() // MINUTE_MS
        if minute != self._minute:
            self._end_minute()
            self._minute = minute
        key = (shard, group_id, member_id)
        known = self._gaps.get(key)
        if known is None and len(self._gaps) >= GAPS_MAX:
            return
        if known is None or gap_ms > known:
            self._gaps[key] = gap_ms

    def _end_minute(self) -> None:
        """Queue the longest gaps of the minute to be written in the next turns of the loop."""
        gaps, self._gaps = self._gaps, {}
        is_idle = not self._over
        self._over += [(self._minute * MINUTE_MS, key, gap_ms) for key, gap_ms in gaps.items()]
        if self._over and is_idle:
            self._host.call_soon(self._write_gaps)

    def _write_gaps(self) -> None:
        now, self._over = self._over[:GAPS_PER_TURN], self._over[GAPS_PER_TURN:]
        for minute_ms, (shard, group_id, member_id), gap_ms in now:
            self._note(
                "heartbeat_gap",
                minute_ms=minute_ms,
                shard=shard,
                group=group_id,
                member=member_id,
                gap_ms=gap_ms,
            )
        if self._over:
            self._host.call_soon(self._write_gaps)

    def close(self) -> None:
        """Write the notes held and close."""
        self._end_minute()
        while self._over:
            self._write_gaps()
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note(self, kind: str, **fields: object) -> None:
        short = {
            name: value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value
            for name, value in fields.items()
        }
        payload: bytes = msgpack.packb({"kind": kind, "at_ms": self._host.wall_ms(), **short})
        self._buffer.append(_HEAD.pack(len(payload), crc32c(payload)) + payload)
        self._buffer_bytes += _HEAD.size + len(payload)
        if len(self._buffer) >= BUFFER_NOTES or self._buffer_bytes >= BUFFER_BYTES:
            self.flush()
        elif not self._flush_queued:
            self._flush_queued = True
            self._host.call_later(FLUSH_MS, self._flush_later)

    def _flush_later(self) -> None:
        self._flush_queued = False
        self.flush()

    def contents(self) -> list[bytes]:
        """The contents of both files, the older first, for `notes_in`; on any thread, after a `flush`."""
        older_first = (self._paths[1 - self._place], self._paths[self._place])
        return [_contents(self._host.files, path) for path in older_first]

    def flush(self) -> None:
        """Write the notes held to the operating system; not synced."""
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        if not data or self._broken:
            return
        try:
            file = self._open() if self._file is None else self._file
            if self._size + len(data) > self._bytes_max:
                file.close()
                self._place = 1 - self._place
                file = self._file = self._host.files.open(self._paths[self._place], "w")
                file.truncate(0)
                self._size = 0
            file.pwrite(data, self._size)
            self._size += len(data)
        except (OSError, Corrupt) as error:
            self._broken = True
            LOG.warning("evidence is no longer written: %s", error)

    def _open(self) -> File:
        """Continue after the newest whole note of an earlier run."""
        ends = [_newest(self._host.files, path) for path in self._paths]
        self._place = 0 if ends[0] >= ends[1] else 1
        self._size = ends[self._place][1]
        self._file = self._host.files.open(self._paths[self._place], "w")
        self._file.truncate(self._size)
        return self._file


_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "refused": {"api": int, "error": int, "reason": str, "group": str, "member": str, "client": str},
    "trouble": {"said": str, "group": str},
    "fault": {
        "fault": int,
        "action": str,
        "api": int,
        "error": int,
        "delay_ms": int,
        "throttle_ms": int,
        "group": str,
        "member": str,
        "client": str,
    },
    "heartbeat_gap": {"minute_ms": int, "gap_ms": (int, float), "group": str, "member": str},
}
"""The fields that readers rely on in a note of each kind."""


def is_note(value: object) -> bool:
    """Whether a value from elsewhere is a note as `Evidence` writes them, or one of a later kind."""
    if not isinstance(value, dict) or not isinstance(value.get("at_ms"), int):
        return False
    kind, owned = value.get("kind"), value.get("owned") or {}
    return (
        isinstance(kind, str)
        and all(isinstance(value.get(name), of) for name, of in _FIELDS.get(kind, {}).items())
        and isinstance(owned, dict)
        and all(isinstance(numbers, list) for numbers in owned.values())
    )


def notes_in(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The undecoded notes in a file's bytes up to the first that is not whole, each with its end."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        payload = data[at + _HEAD.size : end]
        if not payload or len(payload) != length or crc32c(payload) != crc:
            return
        yield payload, end
        at = end


def _contents(files: Files, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        return b""


def about(group_id: str) -> bytes:
    """Bytes that are in every note about a group, and in no other note."""
    packed: bytes = msgpack.packb("group") + msgpack.packb(group_id[:TEXT_CHARACTERS_MAX])
    return packed


def _newest(files: Files, path: str) -> tuple[int, int]:
    """(time of the newest whole note of one file, its end); (-1, 0) if there is none."""
    last = deque(notes_in(_contents(files, path)), maxlen=1)
    return (msgpack.unpackb(last[0][0])["at_ms"], last[0][1]) if last else (-1, 0)


def torn_at(files: Files, path: str) -> int | None:
    """The end of a file's whole notes, if more bytes follow: torn by a crash, or damaged.

    None: all are whole, or it is being written.  Raises Corrupt when it is not a regular file.
    """
    data = _contents(files, path)
    end = _end_of_whole(data)
    return end if end < len(data) and data == _contents(files, path) else None


def whole_notes(files: Files, path: str) -> bytes:
    """The bytes of a file's whole notes, up to the first that is not.  Raises Corrupt like `torn_at`."""
    data = _contents(files, path)
    return data[: _end_of_whole(data)]


def _end_of_whole(data: bytes) -> int:
    return max((at for _, at in notes_in(data)), default=0)


def read_evidence(files: Files, path: str) -> list[dict[str, Any]]:
    """All notes in a node's directory, oldest first; torn or damaged ones are left out."""
    contents = (_contents(files, join(path, name)) for name in FILES)
    notes = [msgpack.unpackb(payload) for data in contents for payload, _ in notes_in(data)]
    return sorted(notes, key=lambda note: note["at_ms"])
