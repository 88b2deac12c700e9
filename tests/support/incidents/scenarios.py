"""Incidents, provoked. Each scenario leaves in `Known` what it did to whom.

A scenario must be unmistakable: what it says that happened did happen (it asserts that where chance has a
part), and nothing else did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.api import Job, JobKind
from coordinator.limits import Limits
from records import TermWhy
from tests.support.incidents.process import NEVER, Process
from tests.support.incidents.rig import GROUP, Rig
from tests.support.incidents.truth import Known, Play, Scenario

INCIDENTS: dict[str, Scenario] = {}
SESSION_MS = 20_000


def incident(name: str, **settings: Any) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        INCIDENTS[name] = Scenario(name, play, settings)
        return play

    return register


def _group(rig: Rig, *, smallest: int = 2, **how: Any) -> list[Process]:
    """A topic and a stable group that shares it."""
    size = rig.rng.randint(smallest, 6)
    rig.create_topic("orders", size * rig.rng.randint(2, 4))
    return rig.crowd(size, **how)


def _asked(rig: Rig, crowd: list[Process]) -> Process:
    """One of those that must give up partitions, now that the target is another one."""
    losers = [one for one in crowd if rig.to_give_up(one)]
    assert losers, "nobody is to give up anything"
    return rig.rng.choice(losers)


def _calm(rig: Rig) -> None:
    rig.live(rig.rng.uniform(5_000, 40_000))


def _slow_revoker(rig: Rig, known: Known, crowd: list[Process]) -> None:
    newcomer = rig.start()
    slow = _asked(rig, crowd)
    held, since_ms = rig.to_give_up(slow), rig.wall_now_ms
    prompt_ms, slow.revoke_ms = slow.revoke_ms, rig.rng.uniform(13_000, 40_000)
    rig.live_until(lambda: not rig.to_give_up(slow) and not rig.owned_by(slow) & held)
    slow.revoke_ms = prompt_ms
    rig.settle()
    assert rig.owned_by(newcomer)
    known.tell("SLOW_REVOKER", slow, partitions=held, since_ms=since_ms)


@incident("slow revoker")
def slow_revoker(rig: Rig, known: Known) -> None:
    """It gives its partitions up long after it was asked, and in time."""
    crowd = _group(rig)
    _slow_revoker(rig, known, crowd)
    _calm(rig)


def _never_gives_up(rig: Rig, known: Known, crowd: list[Process]) -> None:
    rig.start(rebalance_timeout_ms=60_000)
    stuck = _asked(rig, crowd)
    held, since_ms, member_id = rig.to_give_up(stuck), rig.wall_now_ms, stuck.member_id
    prompt_ms, stuck.revoke_ms = stuck.revoke_ms, NEVER
    rig.live_until(lambda: rig.has_expired(member_id))
    stuck.revoke_ms = prompt_ms
    rig.settle()
    known.tell("REVOCATION_TIMED_OUT", member_id, partitions=held, since_ms=since_ms)


@incident("revoker that never acknowledges")
def never_gives_up(rig: Rig, known: Known) -> None:
    """Its rebalance timeout fences it."""
    crowd = _group(rig, rebalance_timeout_ms=rig.rng.choice((12_000, 30_000, 60_000)))
    _never_gives_up(rig, known, crowd)
    _calm(rig)


def _kill(rig: Rig, known: Known, crowd: list[Process]) -> None:
    dead = rig.rng.choice(crowd)
    crowd.remove(dead)
    held, since_ms = rig.owned_by(dead), rig.wall_now_ms
    dead.kill()
    rig.live_until(lambda: dead.member_id not in rig.group(GROUP).members)
    rig.settle()
    known.tell("SESSION_EXPIRED", dead, partitions=held, since_ms=since_ms)


@incident("killed member")
def killed(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3)
    _kill(rig, known, crowd)
    _calm(rig)


@incident("host that goes with its members", session_timeout_ms=SESSION_MS)
def killed_together(rig: Rig, known: Known) -> None:
    """A host goes, and all members on it."""
    crowd = _group(rig, smallest=4)
    dead = rig.rng.sample(crowd, 2)
    since_ms = rig.wall_now_ms
    held = set().union(*(rig.owned_by(one) for one in dead))
    for one in dead:
        one.kill()
    rig.live_until(lambda: not {one.member_id for one in dead} & rig.group(GROUP).members.keys())
    rig.settle()
    known.tell("SESSION_EXPIRED", *dead, partitions=held, since_ms=since_ms)


@incident("paused member", session_timeout_ms=SESSION_MS)
def paused(rig: Rig, known: Known) -> None:
    """It stands still for longer than its session, and comes back as if nothing had been."""
    crowd = _group(rig)
    still = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(still), rig.wall_now_ms
    still.pause(SESSION_MS + rig.rng.uniform(4_000, 40_000))
    rig.live_until(lambda: still.member_id not in rig.group(GROUP).members)
    rig.live_until(lambda: still.member_id in rig.group(GROUP).members)
    rig.settle()
    known.tell("MEMBER_PAUSED", still, partitions=held, since_ms=since_ms)
    _calm(rig)


def _flap(rig: Rig, known: Known, *, by_kill: bool) -> None:
    since_ms = rig.wall_now_ms
    flapping = rig.start()
    member_ids = [flapping.member_id]
    held = set()
    for _ in range(rig.rng.randint(4, 6)):
        rig.settle()
        held |= rig.owned_by(flapping)
        if by_kill:
            flapping.kill()
            rig.live_until(lambda: flapping.member_id not in rig.group(GROUP).members)
        else:
            flapping.leave()
        flapping.restart(rig.rng.uniform(1_000, 15_000))
        member_ids.append(flapping.member_id)
        rig.live_until(lambda: flapping.member_id in rig.group(GROUP).members)
    rig.settle()
    known.tell("FLAPPING_MEMBER", *member_ids, partitions=held, since_ms=since_ms)


@incident("flapping member: leaves and joins")
def flapping(rig: Rig, known: Known) -> None:
    _group(rig)
    _flap(rig, known, by_kill=False)
    _calm(rig)


@incident("flapping member: crashes and joins", session_timeout_ms=10_000)
def crashing(rig: Rig, known: Known) -> None:
    _group(rig)
    _flap(rig, known, by_kill=True)
    _calm(rig)


@incident("static member away too long", session_timeout_ms=SESSION_MS)
def away_too_long(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=2)
    gone = rig.start(instance_id="worker-1")
    rig.settle()
    held, since_ms = rig.owned_by(gone), rig.wall_now_ms
    gone.leave(for_good=False)
    rig.live_until(lambda: gone.member_id not in rig.group(GROUP).members)
    rig.settle()
    known.tell("STATIC_MEMBER_GONE", gone, partitions=held, since_ms=since_ms)
    if rig.rng.random() < 0.5:
        gone.restart(rig.rng.uniform(1_000, 20_000))
        rig.live(20_000)
        rig.settle()
    assert crowd


@incident("instance id of two processes")
def contested(rig: Rig, known: Known) -> None:
    """The second one is locked out, again and again."""
    _group(rig)
    owner = rig.start(instance_id="worker-1")
    rig.settle()
    held, since_ms = rig.owned_by(owner), rig.wall_now_ms
    second = rig.start(instance_id="worker-1")
    rig.live(rig.rng.uniform(10_000, 60_000))
    second.kill()
    rig.settle()
    known.tell(
        "INSTANCE_ID_CONTESTED", owner, second, partitions=held, since_ms=since_ms, needs_evidence=True
    )
    _calm(rig)


@incident("instance id taken over from a process that goes on")
def zombie_instance(rig: Rig, known: Known) -> None:
    """It said that it goes away and did not: another one has its place, and it is fenced."""
    _group(rig)
    old = rig.start(instance_id="worker-1")
    rig.settle()
    since_ms, member_id = rig.wall_now_ms, old.member_id
    epoch = old.client.epoch
    old.leave(for_good=False)
    rig.live(rig.rng.uniform(500, 3_000))
    new = rig.start(instance_id="worker-1")
    rig.settle()
    held = rig.owned_by(new)
    old.client.epoch, old.retry_ms = epoch, 4_000.0
    old.begin()
    rig.live(rig.rng.uniform(10_000, 40_000))
    old.kill()
    known.tell(
        "INSTANCE_ID_CONTESTED", new, member_id, partitions=held, since_ms=since_ms, needs_evidence=True
    )


@incident("stuck reconciliation: a member that does not give up")
def stuck(rig: Rig, known: Known) -> None:
    """It has half an hour for it, and the log ends before."""
    crowd = _group(rig, rebalance_timeout_ms=1_800_000)
    rig.start()
    slow = _asked(rig, crowd)
    held, since_ms = rig.to_give_up(slow), rig.wall_now_ms
    slow.revoke_ms = NEVER
    rig.live(rig.rng.uniform(150_000, 400_000))
    assert rig.state == "Reconciling"
    known.tell("STUCK_RECONCILIATION", slow, partitions=held, since_ms=since_ms)


@incident("stuck reconciliation: a member that does not come for its partitions", session_timeout_ms=600_000)
def not_fetched(rig: Rig, known: Known) -> None:
    """Its session lasts ten minutes, so its part is nobody's for long."""
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(3, 4))
    silent, leaving = rig.rng.sample(crowd, 2)
    since_ms = rig.wall_now_ms
    silent.kill()
    had = rig.owned_by(silent)
    leaving.leave()
    rig.live(rig.rng.uniform(150_000, 400_000))
    assert rig.state == "Reconciling"
    waiting = rig.target_of(silent) - had
    assert waiting
    known.tell("STUCK_RECONCILIATION", silent, partitions=waiting, since_ms=since_ms)


def _broken(error: str, delay_ms: float) -> Callable[[Job], tuple[float, object, str | None]]:
    def fails(job: Job) -> tuple[float, object, str | None]:
        assert job.kind is JobKind.ASSIGN
        return delay_ms, None if delay_ms > 1_000 else {"error": error}, error if delay_ms > 1_000 else None

    return fails


def _assignor(rig: Rig, known: Known, delay_ms: float, error: str) -> None:
    crowd = _group(rig)
    good, rig.answers = rig.answers, _broken(error, delay_ms)
    since_ms = rig.wall_now_ms
    if rig.rng.random() < 0.5:
        before = sum(topic.num_partitions for topic in rig.group(GROUP).topics)
        more = before + rig.rng.randint(1, 4)
        rig.grow_topic("orders", more)
        rig.work()
        who, wanted = crowd, {p for p in rig.all_partitions("orders") if p.partition >= before}
        rig.live(rig.rng.uniform(14_000, 60_000))
        rig.answers = good
        rig.settle()
        known.tell(
            "ASSIGNOR_FAILED",
            *who,
            partitions=wanted,
            since_ms=since_ms,
            needs_evidence=True,
            alone="NO_TARGET",
        )
        return
    newcomer = rig.start()
    rig.live(rig.rng.uniform(14_000, 60_000))
    assert not rig.owned_by(newcomer)
    rig.answers = good
    rig.settle()
    known.tell(
        "ASSIGNOR_FAILED",
        newcomer,
        partitions=rig.owned_by(newcomer),
        since_ms=since_ms,
        needs_evidence=True,
        alone="NO_TARGET",
    )


@incident("assignor that raises", assignors=("weighted", "uniform"))
def assignor_raises(rig: Rig, known: Known) -> None:
    _assignor(rig, known, 150.0, "ValueError: no weight for app-3, in weighted.py, line 17")
    _calm(rig)


@incident("assignor that hangs", assignors=("weighted", "uniform"))
def assignor_hangs(rig: Rig, known: Known) -> None:
    _assignor(rig, known, 10_000.0, "took over 10000 ms")
    _calm(rig)


@incident("client-side assignor that lets its time pass")
def computing_late(rig: Rig, known: Known) -> None:
    timeout_ms = rig.rng.choice((14_000, 20_000, 30_000))
    crowd = _group(rig, computes=True, rebalance_timeout_ms=timeout_ms)
    since_ms = rig.wall_now_ms
    for one in crowd:
        one.compute_ms = None
    more = sum(topic.num_partitions for topic in rig.group(GROUP).topics)
    rig.grow_topic("orders", more + 3)
    rig.work()
    rounds = rig.shard.core.client_side.rounds
    rig.live_until(lambda: GROUP in rounds and rounds[GROUP].chosen)
    late = next(one for one in crowd if one.member_id == rounds[GROUP].chosen)
    rig.live_until(lambda: GROUP not in rounds or rounds[GROUP].chosen != late.member_id)
    for one in crowd:
        one.compute_ms = 200.0
    rig.settle()
    wanted = {p for p in rig.all_partitions("orders") if p.partition >= more}
    known.tell(
        "CLIENT_ASSIGNOR_LATE",
        late,
        partitions=wanted,
        since_ms=since_ms,
        needs_evidence=True,
        alone="NO_TARGET",
    )


@incident("expressions that cannot be resolved", limits=Limits(resolve_inline_cost_max=0))
def unresolved(rig: Rig, known: Known) -> None:
    """The child process that matches them dies again and again."""
    crowd = _group(rig, topics=(), regex="orders.*")
    good = rig.answers
    rig.answers = lambda _: (100.0, None, "ended with signal 9")
    since_ms = rig.wall_now_ms
    rig.create_topic("orders-eu", 4)
    rig.live(rig.rng.uniform(20_000, 60_000))
    known.tell("EXPRESSIONS_NOT_RESOLVED", *crowd, since_ms=since_ms, needs_evidence=True)
    rig.answers = good
    rig.live(20_000)
    rig.settle()


# Leaders.


@incident("failover")
def failover(rig: Rig, known: Known) -> None:
    _group(rig)
    _calm(rig)
    since_ms = rig.wall_now_ms
    rig.lose_leader(rig.rng.uniform(300, 2_000), rig.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
    known.tell("FAILOVER", since_ms=since_ms)
    rig.settle()
    _calm(rig)


@incident("leaders that change again and again")
def many_failovers(rig: Rig, known: Known) -> None:
    _group(rig)
    since_ms = rig.wall_now_ms
    for _ in range(rig.rng.randint(3, 5)):
        rig.lose_leader(rig.rng.uniform(300, 2_000), rig.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
        rig.live(rig.rng.uniform(5_000, 60_000))
    known.tell("LEADER_FLAPPING", since_ms=since_ms)
    rig.settle()


@incident("session expiry that coincides with a failover", session_timeout_ms=SESSION_MS)
def expiry_with_failover(rig: Rig, known: Known) -> None:
    """It dies with the leader, or cannot find the new one."""
    crowd = _group(rig, smallest=3)
    lost = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(lost), rig.wall_now_ms
    comes_back = rig.rng.random() < 0.5
    lost.pause(SESSION_MS * 2.0) if comes_back else lost.kill()
    rig.live(rig.rng.uniform(0, 3_000))
    rig.lose_leader(rig.rng.uniform(300, 2_000), rig.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
    rig.live_until(lambda: lost.member_id not in rig.group(GROUP).members)
    rig.live(SESSION_MS * 2.0)
    rig.settle()
    known.tell("EXPIRED_AFTER_FAILOVER", lost, partitions=held, since_ms=since_ms)


@incident("session expiry that coincides with a hand-over", session_timeout_ms=SESSION_MS)
def expiry_with_handover(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3)
    lost = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(lost), rig.wall_now_ms
    lost.kill()
    rig.live(rig.rng.uniform(0, 3_000))
    rig.lose_leader(rig.rng.uniform(20, 300), TermWhy.TRANSFER)
    rig.live_until(lambda: lost.member_id not in rig.group(GROUP).members)
    rig.settle()
    known.tell("EXPIRED_AFTER_FAILOVER", lost, partitions=held, since_ms=since_ms)


# Requests.


@incident("commits of a member that is none any more", session_timeout_ms=SESSION_MS)
def zombie_commits(rig: Rig, known: Known) -> None:
    """It was fenced, does not heartbeat any more, and goes on committing."""
    crowd = _group(rig, smallest=3)
    zombie = rig.rng.choice(crowd)
    held, died_ms = rig.owned_by(zombie), rig.wall_now_ms
    zombie.kill()
    rig.live_until(lambda: zombie.member_id not in rig.group(GROUP).members)
    rig.settle()
    known.tell("SESSION_EXPIRED", zombie, partitions=held, since_ms=died_ms)
    since_ms = rig.wall_now_ms
    place = min(held)
    rig.speaking = zombie
    for _ in range(rig.rng.randint(4, 9)):
        rig.commit(
            {(place.topic, place.partition): 7},
            group_id=GROUP,
            member_id=zombie.member_id,
            epoch=zombie.client.epoch,
        )
        rig.speaking = None
        rig.live(rig.rng.uniform(500, 5_000))
        rig.speaking = zombie
    rig.speaking = None
    known.tell("REQUESTS_REFUSED", zombie, since_ms=since_ms, needs_evidence=True)


@incident("commits with a stale epoch")
def stale_commits(rig: Rig, known: Known) -> None:
    crowd = _group(rig)
    stale = rig.rng.choice(crowd)
    stale.commits = False
    since_ms = rig.wall_now_ms
    for _ in range(rig.rng.randint(4, 9)):
        place = min(rig.owned_by(stale))
        rig.speaking = stale
        codes = rig.commit(
            {(place.topic, place.partition): 7},
            group_id=GROUP,
            member_id=stale.member_id,
            epoch=0,
        )
        rig.speaking = None
        assert all(codes.values())
        rig.live(rig.rng.uniform(500, 5_000))
    known.tell("REQUESTS_REFUSED", stale, since_ms=since_ms, needs_evidence=True)


# Many at once.


@incident("mass restart", heartbeat_interval_ms=3_000)
def storm(rig: Rig, known: Known) -> None:
    rig.create_topic("orders", 24)
    crowd = rig.crowd(rig.rng.randint(6, 9))
    _calm(rig)
    held = set().union(*(rig.owned_by(one) for one in crowd))
    since_ms = rig.wall_now_ms
    old = [one.member_id for one in crowd]
    for one in crowd:
        rig.live(rig.rng.uniform(50, 600))
        one.leave()
        one.restart(rig.rng.uniform(500, 4_000))
    rig.live(12_000)
    rig.settle()
    known.tell("REBALANCE_STORM", *old, *(one.member_id for one in crowd), partitions=held, since_ms=since_ms)


# What is no disturbance, and must be named as the cause of its epoch.


@incident("topic growth")
def growth(rig: Rig, known: Known) -> None:
    _group(rig)
    before = len(rig.all_partitions("orders"))
    since_ms = rig.wall_now_ms
    rig.grow_topic("orders", before + rig.rng.randint(1, 6))
    rig.settle()
    new = {p for p in rig.all_partitions("orders") if p.partition >= before}
    takers = [one for one in rig.processes if rig.owned_by(one) & new]
    known.tell("TOPIC_GROWN", *takers, partitions=new, since_ms=since_ms)


@incident("topic creation")
def creation(rig: Rig, known: Known) -> None:
    crowd = _group(rig, topics=("orders", "refunds"))
    since_ms = rig.wall_now_ms
    rig.create_topic("refunds", rig.rng.randint(1, 6))
    rig.settle()
    new = rig.all_partitions("refunds")
    takers = [one for one in crowd if rig.owned_by(one) & new]
    known.tell("TOPIC_CREATED", *takers, partitions=new, since_ms=since_ms)


@incident("topic deletion")
def deletion(rig: Rig, known: Known) -> None:
    rig.create_topic("refunds", rig.rng.randint(2, 6))
    crowd = _group(rig, topics=("orders", "refunds"))
    lost = rig.all_partitions("refunds")
    losers = [one for one in crowd if rig.owned_by(one) & lost]
    since_ms = rig.wall_now_ms
    rig.delete_topic("refunds")
    rig.settle()
    known.tell("TOPIC_DELETED", *losers, partitions=lost, since_ms=since_ms)


@incident("expression that matches another topic")
def expression(rig: Rig, known: Known) -> None:
    crowd = _group(rig, topics=(), regex="orders.*")
    since_ms = rig.wall_now_ms
    rig.create_topic("orders-eu", rig.rng.randint(2, 6))
    rig.live(2_000)
    rig.settle()
    new = rig.all_partitions("orders-eu")
    takers = [one for one in crowd if rig.owned_by(one) & new]
    assert takers
    known.tell("REGEX_RESOLUTION_CHANGED", *takers, partitions=new, since_ms=since_ms)


@incident("removal by an operator")
def removal(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3)
    removed = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(removed), rig.wall_now_ms
    removed.kill()
    rig.remove(removed)
    rig.settle()
    known.tell("MEMBER_REMOVED", removed, partitions=held, since_ms=since_ms)


# Several in one run.


@incident("slow revoker, and later a kill", session_timeout_ms=SESSION_MS)
def slow_and_killed(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3)
    _slow_revoker(rig, known, crowd)
    _calm(rig)
    _kill(rig, known, crowd)


@incident("growth while a member is dead", session_timeout_ms=SESSION_MS)
def growth_while_dead(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3)
    dead = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(dead), rig.wall_now_ms
    dead.kill()
    rig.live(rig.rng.uniform(1_000, 10_000))
    before = len(rig.all_partitions("orders"))
    rig.grow_topic("orders", before + 2 * len(crowd))
    rig.work()
    grown_ms = rig.wall_now_ms
    new = {p for p in rig.all_partitions("orders") if p.partition >= before}
    rig.live(0)
    takers = [one for one in rig.processes if rig.target_of(one) & new]
    known.tell("TOPIC_GROWN", *takers, partitions=new, since_ms=grown_ms)
    rig.live_until(lambda: dead.member_id not in rig.group(GROUP).members)
    rig.settle()
    known.tell("SESSION_EXPIRED", dead, partitions=held, since_ms=since_ms)


@incident("flapping member beside a failover", session_timeout_ms=SESSION_MS)
def flapping_and_failover(rig: Rig, known: Known) -> None:
    _group(rig)
    _flap(rig, known, by_kill=False)
    since_ms = rig.wall_now_ms
    rig.lose_leader(rig.rng.uniform(300, 2_000))
    known.tell("FAILOVER", since_ms=since_ms)
    rig.settle()


@incident("one never acknowledges, another is paused", session_timeout_ms=SESSION_MS)
def fenced_and_paused(rig: Rig, known: Known) -> None:
    crowd = _group(rig, smallest=3, rebalance_timeout_ms=15_000)
    _never_gives_up(rig, known, crowd)
    _calm(rig)
    still = rig.rng.choice(crowd)
    held, since_ms = rig.owned_by(still), rig.wall_now_ms
    still.pause(SESSION_MS + rig.rng.uniform(4_000, 20_000))
    rig.live_until(lambda: still.member_id not in rig.group(GROUP).members)
    rig.live_until(lambda: still.member_id in rig.group(GROUP).members)
    rig.settle()
    known.tell("MEMBER_PAUSED", still, partitions=held, since_ms=since_ms)
