"""Applying what is on disk already: the entries loaded at a start, up to the own term's first one.

The second hot loop of a start.  Chunks were checked frame by frame when they were scanned or written moments
before, so only the order of indexes is looked at here.
"""

from __future__ import annotations

from raftlog.errors import RESTORE_HINT, Corrupt
from raftlog.frames import HEADER, HEADER_BYTES
from raftlog.host import Host
from raftlog.journal import Journal
from raftlog.machine import StateMachine
from raftlog.settings import CHAIN_STRIDE


class CatchUp:
    """Feeds the journal's synced entries to the machine and the hash chain, a slice at a time."""

    def __init__(self, host: Host, journal: Journal, machine: StateMachine, chunk_bytes: int) -> None:
        self._host = host
        self._journal = journal
        self._machine = machine
        self._chunk_bytes = chunk_bytes
        self._loaded_index = journal.last_index
        self._data = b""
        self._at = 0
        self._path = ""

    def step(self, applied_index: int, to_index: int, deadline_ms: float) -> int:
        """Apply entries behind `applied_index` up to `to_index` or the deadline; the last one applied."""
        while applied_index < to_index:
            if self._at >= len(self._data):
                # What was loaded and what this run appended are never in one chunk: the chain takes the
                # latter from memory.
                last = min(to_index, self._loaded_index) if applied_index < self._loaded_index else to_index
                chunk = self._journal.read_chunk(applied_index + 1, last, self._chunk_bytes)
                self._path, self._data, self._at = chunk.path, chunk.data, 0
            applied_index, in_time = self._walk(applied_index, deadline_ms)
            if not in_time:
                break
        return applied_index

    def _walk(self, applied_index: int, deadline_ms: float) -> tuple[int, bool]:
        """Apply the rest of the chunk, or until the deadline: (last index applied, still in time)."""
        data, at, size, loaded = self._data, self._at, len(self._data), self._loaded_index
        view = memoryview(data)
        apply, unpack, header_bytes = self._machine.apply_frame, HEADER.unpack_from, HEADER_BYTES
        clock_ms, chain = self._host.monotonic_ms, self._journal.chain
        run_start, in_time = at, True
        while at < size and in_time:
            _, _, length, _, index, term, _, timestamp_ms = unpack(data, at)
            if index != applied_index + 1:
                what = f"entry {index} where {applied_index + 1} was read before"
                raise Corrupt(self._path, at, what, RESTORE_HINT)
            end = at + header_bytes + length
            apply(index, term, timestamp_ms, data[at + header_bytes : end])
            applied_index = index
            at = end
            if not index % CHAIN_STRIDE and index <= loaded:
                chain.add(view[run_start:at], index)
                run_start = at
            in_time = clock_ms() < deadline_ms
        if run_start < at and applied_index <= loaded:
            chain.add(view[run_start:at], applied_index)
        self._at = at
        return applied_index, in_time
