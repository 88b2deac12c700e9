"""The part of the log that several directories of a cluster prove decided, where one proves less.

An entry is decided when some file names an index at or above it as committed, or when it is present with
equal (index, term) on a quorum and no other directory given could still win an election without it. The
second condition matters: an entry of an old term may be on a quorum and yet be overwritten (figure 8 of the
Raft paper), as long as a log that lacks it ends with a newer term. Everything that was acknowledged is
decided by this rule: it was on a quorum, and Raft elects no leader that lacks it.

Pure functions: the contents of files are passed in as `Tail`s. Directories that are not given are assumed to
vote for any candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRun:
    """Consecutive entries of one term."""

    first_index: int
    last_index: int
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of one shard's log in one directory.

    ``commit_index`` is the highest index that its own files name as committed. ``runs`` cover the entries
    above the highest such index of all directories; a log that ends below it has none. A node that is still
    joining (a replaced disk that has not caught up) acknowledges nothing: ``counts`` is False.
    """

    node_id: int
    commit_index: int
    last_index: int
    last_term: int
    runs: tuple[TermRun, ...] = ()
    counts: bool = True

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry is among the ``runs``."""
        return any(run.term == term and run.first_index <= index <= run.last_index for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Everything up to ``index`` is decided; ``known`` says, per tail, how far its own entries surely are."""

    index: int
    known: tuple[int, ...]


def quorum_of(num_voters: int) -> int:
    """Number of voters that make a majority."""
    return num_voters // 2 + 1


def decided(tails: Sequence[Tail], num_voters: int) -> Decided:
    """The decided part of one shard's log, judged by all its ``tails``."""
    index = max((tail.commit_index for tail in tails), default=0)
    term = None
    for end, of_term in _candidates(tails):
        if end > index and _is_decided(tails, num_voters, end, of_term):
            index, term = end, of_term
    known = (index if term is not None and tail.holds(index, term) else tail.commit_index for tail in tails)
    return Decided(index=index, known=tuple(known))


def _candidates(tails: Sequence[Tail]) -> set[tuple[int, int]]:
    """The (index, term) of the end of each run; within a run, the holders of all entries are the same."""
    return {(run.last_index, run.term) for tail in tails for run in tail.runs}


def _is_decided(tails: Sequence[Tail], num_voters: int, index: int, term: int) -> bool:
    voting = [tail for tail in tails if tail.counts]
    holders = {tail.node_id for tail in voting if tail.holds(index, term)}
    if len(holders) < quorum_of(num_voters):
        return False
    absent = num_voters - len({tail.node_id for tail in tails})
    others = [tail for tail in voting if tail.node_id not in holders]
    return not any(_votes(voting, tail) + absent >= quorum_of(num_voters) for tail in others)


def _votes(voting: Sequence[Tail], candidate: Tail) -> int:
    """Number of voters that would vote for this log, because their own is not newer."""
    end = (candidate.last_term, candidate.last_index)
    return len({tail.node_id for tail in voting if (tail.last_term, tail.last_index) <= end})
