"""Work of one replica that grows with its log: loading, and rebuilding the state machine.

Invariants: a turn of the loop spends `load_slice_ms` on it; only the newest piece of work goes on; an
exception in it stops the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raftlog.env.host import Host
from raftlog.replica.replica_state import ReplicaState, ReplicaStatus


class SlicedWork:
    """Does one piece of work, a slice in each turn, until the replica is down."""

    def __init__(
        self, host: Host, slice_ms: float, status: ReplicaStatus, fail: Callable[[BaseException], None]
    ) -> None:
        self._host = host
        self._slice_ms = slice_ms
        self._status = status
        self._fail = fail
        self._steps: Iterator[None] | None = None

    def start(self, steps: Iterator[None], done: Callable[[], None]) -> None:
        """Do the steps from the next turn on, then call `done`; abandons work under way."""
        self._steps = steps
        self._host.call_soon(self._go_on, steps, done)

    def _go_on(self, steps: Iterator[None], done: Callable[[], None]) -> None:
        if self._status.state is ReplicaState.DOWN or steps is not self._steps:
            return
        deadline_ms = self._host.monotonic_ms() + self._slice_ms
        try:
            for _ in steps:
                if self._host.monotonic_ms() >= deadline_ms:
                    self._host.call_soon(self._go_on, steps, done)
                    return
            done()
        except Exception as error:
            self._fail(error)
