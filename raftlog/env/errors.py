"""Errors about a node's files and peers; each message says where the fault is and what to do."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

PLACES_MAX = 4
"""The innermost calls of a stack that are shown: enough to locate a fault."""


def in_one_line(error: BaseException) -> str:
    """The exception and where it was raised, for the line with which a node stops."""
    calls = traceback.extract_tb(error.__traceback__)[-PLACES_MAX:]
    places = [f"{call.filename.rpartition('/')[2]}:{call.lineno} {call.name}" for call in reversed(calls)]
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{said} (at {' < '.join(places)})" if places else said


class RaftlogError(Exception):
    """Base of this package's errors."""


class NotFormatted(RaftlogError):
    """The directory was never formatted as a node's: nothing is started on it, and it never votes."""


class NotEmpty(RaftlogError):
    """The directory to format is not empty: nothing was changed."""


class AlreadyRunning(RaftlogError):
    """Another process holds the directory."""


class PeerMessageRefused(RaftlogError):
    """A peer sent something invalid: none of it was taken."""


class Damaged(RaftlogError):
    """A file is not what was written: where it is broken, what was found there, what an operator can do."""

    def __init__(self, file: str, offset: int, what: str, hint: str = "") -> None:
        super().__init__(f"{file}: byte {offset}: {what}" + (f" ({hint})" if hint else ""))
        self.file = file
        self.offset = offset
        self.what = what
        self.hint = hint


class Corrupt(Damaged):
    """Damage that stops a node: going on could lose or invent acknowledged entries."""


class Torn(Damaged):
    """Damage as a crash may leave it: entries that the cluster has committed are missing at the end of a log.

    The next start cuts it there, and the node gets them again from the others.
    """


RESTORE_HINT = "restore this file from a copy, or replace this node's disk; `log verify` lists all damage"
"""The usual remedy for damage in the middle of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A deviation from what was written: the file, the byte, and the entry concerned.

    `severity` is "damage", or "torn" for a tail that a crash leaves and the next start cuts: no acknowledged
    entry can be in it, unless its last group was damaged later.
    """

    file: str
    offset: int
    index: int | None
    what: str
    hint: str
    severity: str = "damage"
