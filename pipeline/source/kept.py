"""What was learnt from a file, for as long as the file stays as it was.

Spark plans the reads of one session in one process, so what the first read had to look up is there for the
next. What must stay true: a file counts as unchanged by its inode, size and time of change, and only where
that time has passed for long enough that a later change would show in it. Only plans rest on what is kept;
whoever reads rows checks every byte of them.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Learnt = TypeVar("Learnt")

SETTLED_NS = 2_000_000_000
"""The coarsest clock of a usual file system: within it, two changes may bear one time."""


@dataclass(frozen=True, slots=True)
class _State:
    """A file as it is at the moment."""

    device: int
    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, path: str) -> _State | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)

    @property
    def is_settled(self) -> bool:
        return time.time_ns() - self.changed_ns > SETTLED_NS


class Kept(Generic[Learnt]):
    """What was learnt from at most ``most`` files, those asked for last; that nothing was is asked again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._learnt: OrderedDict[tuple[str, Hashable], tuple[_State, Learnt]] = OrderedDict()

    def of(self, path: str, asked: Hashable, learn: Callable[[], Learnt]) -> Learnt:
        """What ``learn`` says of the file, or said of it when ``asked`` the same before."""
        state, key = _State.of(path), (path, asked)
        known = self._learnt.pop(key, None)
        learnt = known[1] if known is not None and known[0] == state else learn()
        if learnt is not None and state is not None and state.is_settled:
            self._learnt[key] = state, learnt
            while len(self._learnt) > self._most:
                self._learnt.popitem(last=False)
        return learnt
