"""A leader's conclusions from its followers' answers, without I/O."""

from __future__ import annotations

from raftlog.consensus.progress import NEVER_MS, FollowerProgress, ReplicationProgress

LEASE_MS = 150.0


def _progress(num_peers: int = 2) -> ReplicationProgress:
    progress = ReplicationProgress(range(2, 2 + num_peers), LEASE_MS)
    for peer in progress.peers.values():
        peer.link(is_up=True, next_index=1, now_ms=0)
        progress.protects(peer.node_id, LEASE_MS)
    return progress


def _answer(peer: FollowerProgress, sent_ms: float, match_index: int = 0) -> None:
    peer.answered(sent_ms, sent_ms + 1)
    peer.matches(match_index)


def test_a_majority_commits_with_this_node_or_without_it() -> None:
    progress = _progress()
    _answer(progress.peers[2], 10, 7)
    assert progress.commit_index(durable_index=9) == 7
    assert progress.commit_index(durable_index=5) == 5
    _answer(progress.peers[3], 10, 8)
    assert progress.commit_index(durable_index=5) == 7
    assert _progress(0).commit_index(4) == 4


def test_a_joining_peer_counts_for_nothing() -> None:
    progress = _progress()
    peer = progress.peers[2]
    _answer(peer, 100, 7)
    assert progress.has_lease(110)
    peer.is_joining = True
    peer.forgot(105)
    assert (progress.commit_index(9), progress.proven_ms(), progress.has_lease(110)) == (0, NEVER_MS, False)
    assert progress.best is progress.peers[3]


def test_a_proof_is_as_old_as_the_last_of_the_quickest_majority() -> None:
    progress = _progress(4)
    for number, sent_ms in ((2, 50.0), (3, 40.0), (4, 30.0)):
        _answer(progress.peers[number], sent_ms)
    assert progress.proven_ms() == 40
    _answer(progress.peers[2], 20)
    assert progress.proven_ms() == 40, "an older answer takes nothing back"


def test_a_lease_needs_links_and_ends_with_the_time_of_sending() -> None:
    progress = _progress()
    _answer(progress.peers[2], 100)
    assert progress.has_lease(100 + LEASE_MS - 1)
    assert not progress.has_lease(100 + LEASE_MS)
    progress.peers[2].link(is_up=False, next_index=1, now_ms=120)
    assert not progress.has_lease(121)
    assert progress.proven_ms() == 100, "what was proven stays proven"


def test_a_new_term_forgets_the_answers_of_the_last_one() -> None:
    progress = _progress()
    for peer in progress.peers.values():
        _answer(peer, 100, 9)
    progress.begin_term(next_index=12)
    assert (progress.commit_index(11), progress.proven_ms(), progress.has_lease(101)) == (0, NEVER_MS, False)
    assert all(peer.next_index == 12 and peer.is_probing for peer in progress.peers.values())


def test_what_matches_never_goes_back() -> None:
    peer = _progress().peers[2]
    assert peer.matches(9)
    assert not peer.matches(5)
    assert (peer.match_index, peer.next_index) == (9, 10)


def test_while_probing_a_heartbeats_answer_is_no_answer_to_the_probe() -> None:
    peer = FollowerProgress(2, is_up=True, next_index=10)
    peer.sent(12, 100, 0)
    assert peer.is_waiting
    assert not peer.matches(3)
    assert peer.is_waiting
    assert peer.matches(12)
    assert (peer.is_waiting, peer.is_probing, peer.in_flight_bytes) == (False, False, 0)


def test_the_window_counts_what_is_not_acknowledged() -> None:
    peer = FollowerProgress(2, is_up=True, next_index=1, is_probing=False)
    for last in (3, 6, 9):
        peer.sent(last, 100, 0)
    assert peer.in_flight_bytes == 300
    peer.matches(6)
    assert peer.in_flight_bytes == 100
    peer.link(is_up=False, next_index=10, now_ms=0)
    assert (peer.in_flight_bytes, peer.next_index, peer.is_probing) == (0, 10, True)


def test_behind_a_new_link_a_joining_disk_may_be_another_one() -> None:
    peer = FollowerProgress(2, is_joining=True, joined_index=50, joining_since_ms=10)
    peer.matches(30)
    peer.link(is_up=True, next_index=60, now_ms=99)
    assert (peer.match_index, peer.joined_index, peer.joining_since_ms) == (0, -1, 99)


def test_a_lease_is_as_long_as_the_peers_have_promised() -> None:
    progress = _progress()
    for node_id, protects_ms in ((2, 50.0), (3, 10 * LEASE_MS)):
        _answer(progress.peers[node_id], 100)
        progress.protects(node_id, protects_ms)
    assert progress.has_lease(100 + LEASE_MS - 1), "peer 3 alone makes a majority with this node"
    assert not progress.has_lease(100 + LEASE_MS), "no longer than the own one"
    progress.peers[3].link(is_up=False, next_index=1, now_ms=101)
    progress.peers[3].link(is_up=True, next_index=1, now_ms=102)
    assert progress.has_lease(149), "peer 2 says so"
    assert not progress.has_lease(150), "peer 3 has not said anything on its new link"
