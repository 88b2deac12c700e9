"""Applying entries from disk: those loaded at a start, and all of them for a rebuild.

The second hot loop of a start.  Chunks were checked frame by frame when they were scanned or written moments
before, so only the order of indexes is checked here.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.env.errors import RESTORE_HINT, Corrupt
from raftlog.env.host import Host
from raftlog.env.settings import CHAIN_STRIDE
from raftlog.env.state_machine import StateMachine
from raftlog.storage.frames import HEADER, HEADER_BYTES
from raftlog.storage.journal import Journal


class LogReplay:
    """Applies synced entries up to `last_index` to the machine in slices, and chains them if `chains`.

    `applied` is called right after each entry that ends a stride of the hash chain.
    """

    def __init__(
        self,
        host: Host,
        journal: Journal,
        machine: StateMachine,
        chunk_bytes: int,
        last_index: int,
        applied: Callable[[int], None],
        chains: bool,
    ) -> None:
        self._host = host
        self._journal = journal
        self._machine = machine
        self._chunk_bytes = chunk_bytes
        self._last_index = last_index
        self._applied = applied
        self._chains = chains
        self._data = b""
        self._at = 0
        self._path = ""

    def step(self, applied_index: int, to_index: int, deadline_ms: float) -> int:
        """Apply entries after `applied_index` up to `to_index` or the deadline; returns the last applied."""
        while applied_index < to_index:
            if self._at >= len(self._data):
                last = min(to_index, self._last_index)
                chunk = self._journal.read_chunk(applied_index + 1, last, self._chunk_bytes)
                self._path, self._data, self._at = chunk.path, chunk.data, 0
            applied_index, in_time = self._walk(applied_index, deadline_ms)
            if not in_time:
                break
        return applied_index

    def _walk(self, applied_index: int, deadline_ms: float) -> tuple[int, bool]:
        """Apply the rest of the chunk, or until the deadline: (last index applied, still in time)."""
        data, at, size, chains = self._data, self._at, len(self._data), self._chains
        view = memoryview(data)
        apply, unpack, header_bytes = self._machine.apply_frame, HEADER.unpack_from, HEADER_BYTES
        clock_ms, chain = self._host.monotonic_ms, self._journal.chain
        run_start, in_time = at, True
        while at < size and in_time:
            _, _, length, _, index, term, _, timestamp_ms = unpack(data, at)
            if index != applied_index + 1:
                what = f"read entry {index} where entry {applied_index + 1} was read before"
                raise Corrupt(self._path, at, what, RESTORE_HINT)
            end = at + header_bytes + length
            apply(index, term, timestamp_ms, data[at + header_bytes : end])
            applied_index = index
            at = end
            if not index % CHAIN_STRIDE:
                if chains:
                    chain.add(view[run_start:at], index)
                    run_start = at
                self._applied(index)
            in_time = clock_ms() < deadline_ms
        if run_start < at and chains:
            chain.add(view[run_start:at], applied_index)
        self._at = at
        return applied_index, in_time
