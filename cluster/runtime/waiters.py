"""Functions to call when an index is committed: long polls of the log, reads of a standby."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.env.host import Host


class Waiter:
    """One registered function; `cancel` is final."""

    __slots__ = ("fn", "index", "others")

    def __init__(self, index: int, fn: Callable[[], None], others: dict[Waiter, None]) -> None:
        self.index = index
        self.fn: Callable[[], None] | None = fn
        self.others = others

    def cancel(self) -> None:
        self.fn = None
        self.others.pop(self, None)

    def wake(self) -> None:
        fn, self.fn = self.fn, None
        if fn is not None:
            fn()


class Waiters:
    """The waiters of one shard. Each is called once, in a turn of its own."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, committed_index: int, fn: Callable[[], None]) -> Waiter:
        waiter = Waiter(index, fn, self._waiting)
        if index <= committed_index:
            self._host.call_soon(waiter.wake)
        else:
            self._waiting[waiter] = None
        return waiter

    def reached(self, index: int) -> None:
        """Call the waiters up to `index`, which is committed now."""
        for waiter in [waiter for waiter in self._waiting if waiter.index <= index]:
            del self._waiting[waiter]
            self._host.call_soon(waiter.wake)
