"""A cache of facts about files, valid as long as a file is unchanged.

Spark plans all reads of a session in one process, so that one read's results are available to the next. The
invariant: a file counts as unchanged if its inode, size and change time are, and only if that time is long
enough ago that a later change would alter it. Only plans rely on the cache; code that reads rows checks every
byte.
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
"""Nanoseconds of the coarsest clock of a common file system; two changes within it may have equal times."""


@dataclass(frozen=True, slots=True)
class _State:
    """A file's identity and state as of now."""

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
    """Caches results for the ``most`` last requested files; a result of None is not cached."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._learnt: OrderedDict[tuple[str, Hashable], tuple[_State, Learnt]] = OrderedDict()

    def of(self, path: str, asked: Hashable, learn: Callable[[], Learnt]) -> Learnt:
        """The result of ``learn`` for the file, cached by path and ``asked``."""
        state, key = _State.of(path), (path, asked)
        known = self._learnt.pop(key, None)
        learnt = known[1] if known is not None and known[0] == state else learn()
        if learnt is not None and state is not None and state.is_settled:
            self._learnt[key] = state, learnt
            while len(self._learnt) > self._most:
                self._learnt.popitem(last=False)
        return learnt
