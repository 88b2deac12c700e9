"""Entries that several directories prove committed, on the cases that Raft's paper is careful about."""

from __future__ import annotations

from history.reading.quorum import Tail, TermRun, decided


def tail(node_id: int, *runs: tuple[int, int, int], commit: int = 0, counts: bool = True) -> Tail:
    """A log that consists of (first index, last index, term) runs."""
    kept = tuple(TermRun(first_index=first, last_index=last, term=term) for first, last, term in runs)
    return Tail(
        node_id=node_id,
        commit_index=commit,
        last_index=runs[-1][1] if runs else 0,
        last_term=runs[-1][2] if runs else 0,
        runs=kept,
        counts=counts,
    )


def test_nothing_is_decided_in_empty_logs() -> None:
    assert decided([tail(1), tail(2), tail(3)], 3).index == 0


def test_what_a_file_names_as_committed_is_decided_wherever_it_is() -> None:
    found = decided([tail(1, (8, 9, 1), commit=7), tail(2, commit=3), tail(3, commit=2)], 3)
    assert found.index == 7
    assert found.known == (7, 3, 2)


def test_what_is_on_a_quorum_is_decided_though_no_file_says_so() -> None:
    found = decided([tail(1, (8, 12, 1), commit=7), tail(2, (8, 10, 1), commit=6), tail(3, commit=2)], 3)
    assert found.index == 10
    assert found.known == (10, 10, 2)


def test_two_of_three_directories_are_enough() -> None:
    assert decided([tail(1, (1, 5, 1)), tail(2, (1, 4, 1))], 3).index == 4


def test_one_of_three_directories_proves_what_it_names_only() -> None:
    assert decided([tail(1, (4, 9, 1), commit=3)], 3).index == 3


def test_equal_index_of_another_term_is_no_quorum() -> None:
    found = decided([tail(1, (5, 6, 2), commit=4), tail(2, (5, 5, 3)), tail(3)], 3)
    assert found.index == 4


def test_an_entry_of_an_old_term_on_a_quorum_may_still_be_overwritten() -> None:
    """Figure 8: in term 4 node 1 replicated entry 2 of term 2; node 3 has entry 2 of term 3 and can win."""
    logs = [
        tail(1, (1, 1, 1), (2, 2, 2), (3, 3, 4)),
        tail(2, (1, 1, 1), (2, 2, 2)),
        tail(3, (1, 1, 1), (2, 2, 3)),
    ]
    assert decided(logs, 3).index == 1


def test_the_same_entry_is_decided_once_one_of_the_newer_term_is_on_the_quorum() -> None:
    newer = ((1, 1, 1), (2, 2, 2), (3, 3, 4))
    assert decided([tail(1, *newer), tail(2, *newer), tail(3, (1, 1, 1), (2, 2, 3))], 3).index == 3


def test_an_acknowledged_entry_stays_decided_under_a_new_leader_without_followers() -> None:
    """Node 2 took over with every acknowledged entry, and failed before its first entry was replicated."""
    logs = [tail(1, (1, 5, 1)), tail(2, (1, 5, 1), (6, 6, 2)), tail(3, (1, 3, 1))]
    assert decided(logs, 3).index == 5


def test_two_copies_of_one_node_count_once() -> None:
    assert decided([tail(1, (1, 5, 1)), tail(1, (1, 5, 1)), tail(2)], 3).index == 0


def test_a_node_that_only_joins_acknowledges_nothing() -> None:
    logs = [tail(1, (1, 5, 1)), tail(2, (1, 5, 1), counts=False), tail(3)]
    assert decided(logs, 3).index == 0


def test_directories_that_are_not_given_may_have_voted_for_any_node() -> None:
    """Node 4 of five lacks the entry and can still be elected: by itself, by node 5, whose directory is not
    given, and by node 3, whose log is not newer."""
    newest = tail(4, (1, 4, 1), (5, 5, 3))
    holders = [tail(1, (1, 6, 2)), tail(2, (1, 6, 2)), tail(3, (1, 6, 2))]
    assert decided([*holders, newest], 5).index == 0
    older = tail(4, (1, 4, 1))
    assert decided([*holders, older], 5).index == 6
