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
from tests.support.incidents import classic_process as classic
from tests.support.incidents.process import NEVER, Process
from tests.support.incidents.truth import Known, Play, Scenario
from tests.support.incidents.world import GROUP, IncidentWorld

INCIDENTS: dict[str, Scenario] = {}
SESSION_MS = 20_000


def incident(name: str, **settings: Any) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        INCIDENTS[name] = Scenario(name, play, settings)
        return play

    return register


def _group(world: IncidentWorld, *, smallest: int = 2, **how: Any) -> list[Process]:
    """Create a topic and a stable group that shares it."""
    size = world.rng.randint(smallest, 6)
    world.create_topic("orders", size * world.rng.randint(2, 4))
    return world.crowd(size, **how)


def _asked(world: IncidentWorld, crowd: list[Process]) -> Process:
    """Choose one of the processes that the new target asks to revoke partitions."""
    losers = [one for one in crowd if world.to_give_up(one)]
    assert losers, "nobody is to give up anything"
    return world.rng.choice(losers)


def _calm(world: IncidentWorld) -> None:
    world.live(world.rng.uniform(5_000, 40_000))


def _slow_revoker(world: IncidentWorld, known: Known, crowd: list[Process]) -> None:
    newcomer = world.start()
    slow = _asked(world, crowd)
    held, since_ms = world.to_give_up(slow), world.wall_now_ms
    prompt_ms, slow.revoke_ms = slow.revoke_ms, world.rng.uniform(13_000, 40_000)
    world.live_until(lambda: not world.to_give_up(slow) and not world.owned_by(slow) & held)
    slow.revoke_ms = prompt_ms
    world.settle()
    assert world.owned_by(newcomer)
    known.tell("SLOW_REVOKER", slow, partitions=held, since_ms=since_ms)


@incident("slow revoker")
def slow_revoker(world: IncidentWorld, known: Known) -> None:
    """A member revokes its partitions late, but within its rebalance timeout."""
    crowd = _group(world)
    _slow_revoker(world, known, crowd)
    _calm(world)


def _never_gives_up(world: IncidentWorld, known: Known, crowd: list[Process]) -> None:
    world.start(rebalance_timeout_ms=60_000)
    stuck = _asked(world, crowd)
    held, since_ms, member_id = world.to_give_up(stuck), world.wall_now_ms, stuck.member_id
    prompt_ms, stuck.revoke_ms = stuck.revoke_ms, NEVER
    world.live_until(lambda: world.has_expired(member_id))
    stuck.revoke_ms = prompt_ms
    world.settle()
    known.tell("REVOCATION_TIMED_OUT", member_id, partitions=held, since_ms=since_ms)


@incident("revoker that never acknowledges")
def never_gives_up(world: IncidentWorld, known: Known) -> None:
    """A member never acknowledges a revocation and is fenced by its rebalance timeout."""
    crowd = _group(world, rebalance_timeout_ms=world.rng.choice((12_000, 30_000, 60_000)))
    _never_gives_up(world, known, crowd)
    _calm(world)


def _kill(world: IncidentWorld, known: Known, crowd: list[Process]) -> None:
    dead = world.rng.choice(crowd)
    crowd.remove(dead)
    held, since_ms = world.owned_by(dead), world.wall_now_ms
    dead.kill()
    world.live_until(lambda: dead.member_id not in world.group(GROUP).members)
    world.settle()
    known.tell("SESSION_EXPIRED", dead, partitions=held, since_ms=since_ms)


@incident("killed member")
def killed(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3)
    _kill(world, known, crowd)
    _calm(world)


@incident("host that goes with its members", session_timeout_ms=SESSION_MS)
def killed_together(world: IncidentWorld, known: Known) -> None:
    """A host fails, and all members on it."""
    crowd = _group(world, smallest=4)
    dead = world.rng.sample(crowd, 2)
    since_ms = world.wall_now_ms
    held = set().union(*(world.owned_by(one) for one in dead))
    for one in dead:
        one.kill()
    world.live_until(lambda: not {one.member_id for one in dead} & world.group(GROUP).members.keys())
    world.settle()
    known.tell("SESSION_EXPIRED", *dead, partitions=held, since_ms=since_ms)


@incident("paused member", session_timeout_ms=SESSION_MS)
def paused(world: IncidentWorld, known: Known) -> None:
    """A process pauses for longer than its session, then continues as if nothing had happened."""
    crowd = _group(world)
    still = world.rng.choice(crowd)
    held, since_ms = world.owned_by(still), world.wall_now_ms
    still.pause(SESSION_MS + world.rng.uniform(4_000, 40_000))
    world.live_until(lambda: still.member_id not in world.group(GROUP).members)
    world.live_until(lambda: still.member_id in world.group(GROUP).members)
    world.settle()
    known.tell("MEMBER_PAUSED", still, partitions=held, since_ms=since_ms)
    _calm(world)


def _flap(world: IncidentWorld, known: Known, *, by_kill: bool) -> None:
    since_ms = world.wall_now_ms
    flapping = world.start()
    member_ids = [flapping.member_id]
    held = set()
    for _ in range(world.rng.randint(4, 6)):
        world.settle()
        held |= world.owned_by(flapping)
        if by_kill:
            flapping.kill()
            world.live_until(lambda: flapping.member_id not in world.group(GROUP).members)
        else:
            flapping.leave()
        flapping.restart(world.rng.uniform(1_000, 15_000))
        member_ids.append(flapping.member_id)
        world.live_until(lambda: flapping.member_id in world.group(GROUP).members)
    world.settle()
    known.tell("FLAPPING_MEMBER", *member_ids, partitions=held, since_ms=since_ms)


@incident("flapping member: leaves and joins")
def flapping(world: IncidentWorld, known: Known) -> None:
    _group(world)
    _flap(world, known, by_kill=False)
    _calm(world)


@incident("flapping member: crashes and joins", session_timeout_ms=10_000)
def crashing(world: IncidentWorld, known: Known) -> None:
    _group(world)
    _flap(world, known, by_kill=True)
    _calm(world)


@incident("static member away too long", session_timeout_ms=SESSION_MS)
def away_too_long(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=2)
    gone = world.start(instance_id="worker-1")
    world.settle()
    held, since_ms = world.owned_by(gone), world.wall_now_ms
    gone.leave(for_good=False)
    world.live_until(lambda: gone.member_id not in world.group(GROUP).members)
    world.settle()
    known.tell("STATIC_MEMBER_GONE", gone, partitions=held, since_ms=since_ms)
    if world.rng.random() < 0.5:
        gone.restart(world.rng.uniform(1_000, 20_000))
        world.live(20_000)
        world.settle()
    assert crowd


@incident("instance id of two processes")
def contested(world: IncidentWorld, known: Known) -> None:
    """Two processes have one instance id; the second is refused again and again."""
    _group(world)
    owner = world.start(instance_id="worker-1")
    world.settle()
    held, since_ms = world.owned_by(owner), world.wall_now_ms
    second = world.start(instance_id="worker-1")
    world.live(world.rng.uniform(10_000, 60_000))
    second.kill()
    world.settle()
    known.tell(
        "INSTANCE_ID_CONTESTED", owner, second, partitions=held, since_ms=since_ms, needs_evidence=True
    )
    _calm(world)


@incident("instance id taken over from a process that goes on")
def zombie_instance(world: IncidentWorld, known: Known) -> None:
    """A static member leaves temporarily and is replaced; then it goes on under its old id and is fenced."""
    _group(world)
    old = world.start(instance_id="worker-1")
    world.settle()
    since_ms, member_id = world.wall_now_ms, old.member_id
    epoch = old.client.epoch
    old.leave(for_good=False)
    world.live(world.rng.uniform(500, 3_000))
    new = world.start(instance_id="worker-1")
    world.settle()
    held = world.owned_by(new)
    old.client.epoch, old.retry_ms = epoch, 4_000.0
    old.begin()
    world.live(world.rng.uniform(10_000, 40_000))
    old.kill()
    known.tell(
        "INSTANCE_ID_CONTESTED", new, member_id, partitions=held, since_ms=since_ms, needs_evidence=True
    )


@incident("stuck reconciliation: a member that does not give up")
def stuck(world: IncidentWorld, known: Known) -> None:
    """A member may take half an hour to revoke, and the log ends before that."""
    crowd = _group(world, rebalance_timeout_ms=1_800_000)
    world.start()
    slow = _asked(world, crowd)
    held, since_ms = world.to_give_up(slow), world.wall_now_ms
    slow.revoke_ms = NEVER
    world.live(world.rng.uniform(150_000, 400_000))
    assert world.state == "Reconciling"
    known.tell("STUCK_RECONCILIATION", slow, partitions=held, since_ms=since_ms)


@incident("stuck reconciliation: a member that does not come for its partitions", session_timeout_ms=600_000)
def not_fetched(world: IncidentWorld, known: Known) -> None:
    """A member with a session of ten minutes dies, so its part of the next target has no owner for long."""
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(3, 4))
    silent, leaving = world.rng.sample(crowd, 2)
    since_ms = world.wall_now_ms
    silent.kill()
    had = world.owned_by(silent)
    leaving.leave()
    world.live(world.rng.uniform(150_000, 400_000))
    assert world.state == "Reconciling"
    waiting = world.target_of(silent) - had
    assert waiting
    known.tell("STUCK_RECONCILIATION", silent, partitions=waiting, since_ms=since_ms)


def _broken(error: str, delay_ms: float) -> Callable[[Job], tuple[float, object, str | None]]:
    def fails(job: Job) -> tuple[float, object, str | None]:
        assert job.kind is JobKind.ASSIGN
        return delay_ms, None if delay_ms > 1_000 else {"error": error}, error if delay_ms > 1_000 else None

    return fails


def _assignor(world: IncidentWorld, known: Known, delay_ms: float, error: str) -> None:
    crowd = _group(world)
    good, world.answers = world.answers, _broken(error, delay_ms)
    since_ms = world.wall_now_ms
    if world.rng.random() < 0.5:
        before = sum(topic.num_partitions for topic in world.group(GROUP).topics)
        more = before + world.rng.randint(1, 4)
        world.grow_topic("orders", more)
        world.work()
        who, wanted = crowd, {p for p in world.all_partitions("orders") if p.partition >= before}
        world.live(world.rng.uniform(14_000, 60_000))
        world.answers = good
        world.settle()
        known.tell(
            "ASSIGNOR_FAILED",
            *who,
            partitions=wanted,
            since_ms=since_ms,
            needs_evidence=True,
            alone="NO_TARGET",
        )
        return
    newcomer = world.start()
    world.live(world.rng.uniform(14_000, 60_000))
    assert not world.owned_by(newcomer)
    world.answers = good
    world.settle()
    known.tell(
        "ASSIGNOR_FAILED",
        newcomer,
        partitions=world.owned_by(newcomer),
        since_ms=since_ms,
        needs_evidence=True,
        alone="NO_TARGET",
    )


@incident("assignor that raises", assignors=("weighted", "uniform"))
def assignor_raises(world: IncidentWorld, known: Known) -> None:
    _assignor(world, known, 150.0, "ValueError: no weight for app-3, in weighted.py, line 17")
    _calm(world)


@incident("assignor that hangs", assignors=("weighted", "uniform"))
def assignor_hangs(world: IncidentWorld, known: Known) -> None:
    _assignor(world, known, 10_000.0, "took over 10000 ms")
    _calm(world)


@incident("client-side assignor that lets its time pass")
def computing_late(world: IncidentWorld, known: Known) -> None:
    timeout_ms = world.rng.choice((14_000, 20_000, 30_000))
    crowd = _group(world, computes=True, rebalance_timeout_ms=timeout_ms)
    since_ms = world.wall_now_ms
    for one in crowd:
        one.compute_ms = None
    more = sum(topic.num_partitions for topic in world.group(GROUP).topics)
    world.grow_topic("orders", more + 3)
    world.work()
    rounds = world.shard.groups.client_side.rounds
    world.live_until(lambda: GROUP in rounds and rounds[GROUP].chosen)
    late = next(one for one in crowd if one.member_id == rounds[GROUP].chosen)
    world.live_until(lambda: GROUP not in rounds or rounds[GROUP].chosen != late.member_id)
    for one in crowd:
        one.compute_ms = 200.0
    world.settle()
    wanted = {p for p in world.all_partitions("orders") if p.partition >= more}
    known.tell(
        "CLIENT_ASSIGNOR_LATE",
        late,
        partitions=wanted,
        since_ms=since_ms,
        needs_evidence=True,
        alone="NO_TARGET",
    )


@incident("expressions that cannot be resolved", limits=Limits(resolve_inline_cost_max=0))
def unresolved(world: IncidentWorld, known: Known) -> None:
    """The child process that resolves expressions dies again and again."""
    crowd = _group(world, topics=(), regex="orders.*")
    good = world.answers
    world.answers = lambda _: (100.0, None, "ended with signal 9")
    since_ms = world.wall_now_ms
    world.create_topic("orders-eu", 4)
    world.live(world.rng.uniform(20_000, 60_000))
    known.tell("EXPRESSIONS_NOT_RESOLVED", *crowd, since_ms=since_ms, needs_evidence=True)
    world.answers = good
    world.live(20_000)
    world.settle()


# Leaders.


@incident("failover")
def failover(world: IncidentWorld, known: Known) -> None:
    _group(world)
    _calm(world)
    since_ms = world.wall_now_ms
    world.lose_leader(world.rng.uniform(300, 2_000), world.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
    known.tell("FAILOVER", since_ms=since_ms)
    world.settle()
    _calm(world)


@incident("leaders that change again and again")
def many_failovers(world: IncidentWorld, known: Known) -> None:
    _group(world)
    since_ms = world.wall_now_ms
    for _ in range(world.rng.randint(3, 5)):
        world.lose_leader(world.rng.uniform(300, 2_000), world.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
        world.live(world.rng.uniform(5_000, 60_000))
    known.tell("LEADER_FLAPPING", since_ms=since_ms)
    world.settle()


@incident("session expiry that coincides with a failover", session_timeout_ms=SESSION_MS)
def expiry_with_failover(world: IncidentWorld, known: Known) -> None:
    """A member dies with the leader, or stays silent as one that cannot find the new leader."""
    crowd = _group(world, smallest=3)
    lost = world.rng.choice(crowd)
    held, since_ms = world.owned_by(lost), world.wall_now_ms
    comes_back = world.rng.random() < 0.5
    lost.pause(SESSION_MS * 2.0) if comes_back else lost.kill()
    world.live(world.rng.uniform(0, 3_000))
    world.lose_leader(world.rng.uniform(300, 2_000), world.rng.choice((TermWhy.EXPIRY, TermWhy.RESET)))
    world.live_until(lambda: lost.member_id not in world.group(GROUP).members)
    world.live(SESSION_MS * 2.0)
    world.settle()
    known.tell("EXPIRED_AFTER_FAILOVER", lost, partitions=held, since_ms=since_ms)


@incident("session expiry that coincides with a hand-over", session_timeout_ms=SESSION_MS)
def expiry_with_handover(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3)
    lost = world.rng.choice(crowd)
    held, since_ms = world.owned_by(lost), world.wall_now_ms
    lost.kill()
    world.live(world.rng.uniform(0, 3_000))
    world.lose_leader(world.rng.uniform(20, 300), TermWhy.TRANSFER)
    world.live_until(lambda: lost.member_id not in world.group(GROUP).members)
    world.settle()
    known.tell("EXPIRED_AFTER_FAILOVER", lost, partitions=held, since_ms=since_ms)


# Requests.


@incident("commits of a member that is none any more", session_timeout_ms=SESSION_MS)
def zombie_commits(world: IncidentWorld, known: Known) -> None:
    """A fenced member sends no more heartbeats, but goes on committing."""
    crowd = _group(world, smallest=3)
    zombie = world.rng.choice(crowd)
    held, died_ms = world.owned_by(zombie), world.wall_now_ms
    zombie.kill()
    world.live_until(lambda: zombie.member_id not in world.group(GROUP).members)
    world.settle()
    known.tell("SESSION_EXPIRED", zombie, partitions=held, since_ms=died_ms)
    since_ms = world.wall_now_ms
    place = min(held)
    world.speaking = zombie
    for _ in range(world.rng.randint(4, 9)):
        world.commit(
            {(place.topic, place.partition): 7},
            group_id=GROUP,
            member_id=zombie.member_id,
            epoch=zombie.client.epoch,
        )
        world.speaking = None
        world.live(world.rng.uniform(500, 5_000))
        world.speaking = zombie
    world.speaking = None
    known.tell("REQUESTS_REFUSED", zombie, since_ms=since_ms, needs_evidence=True)


@incident("commits with a stale epoch")
def stale_commits(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world)
    stale = world.rng.choice(crowd)
    stale.commits = False
    since_ms = world.wall_now_ms
    for _ in range(world.rng.randint(4, 9)):
        place = min(world.owned_by(stale))
        world.speaking = stale
        codes = world.commit(
            {(place.topic, place.partition): 7},
            group_id=GROUP,
            member_id=stale.member_id,
            epoch=0,
        )
        world.speaking = None
        assert all(codes.values())
        world.live(world.rng.uniform(500, 5_000))
    known.tell("REQUESTS_REFUSED", stale, since_ms=since_ms, needs_evidence=True)


# Many at once.


@incident("mass restart", heartbeat_interval_ms=3_000)
def storm(world: IncidentWorld, known: Known) -> None:
    world.create_topic("orders", 24)
    crowd = world.crowd(world.rng.randint(6, 9))
    _calm(world)
    held = set().union(*(world.owned_by(one) for one in crowd))
    since_ms = world.wall_now_ms
    old = [one.member_id for one in crowd]
    for one in crowd:
        world.live(world.rng.uniform(50, 600))
        one.leave()
        one.restart(world.rng.uniform(500, 4_000))
    world.live(12_000)
    world.settle()
    known.tell("REBALANCE_STORM", *old, *(one.member_id for one in crowd), partitions=held, since_ms=since_ms)


# Events that are no disturbance, and must be named as the reason of their epoch.


@incident("topic growth")
def growth(world: IncidentWorld, known: Known) -> None:
    _group(world)
    before = len(world.all_partitions("orders"))
    since_ms = world.wall_now_ms
    world.grow_topic("orders", before + world.rng.randint(1, 6))
    world.settle()
    new = {p for p in world.all_partitions("orders") if p.partition >= before}
    takers = [one for one in world.processes if world.owned_by(one) & new]
    known.tell("TOPIC_GROWN", *takers, partitions=new, since_ms=since_ms)


@incident("topic creation")
def creation(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, topics=("orders", "refunds"))
    since_ms = world.wall_now_ms
    world.create_topic("refunds", world.rng.randint(1, 6))
    world.settle()
    new = world.all_partitions("refunds")
    takers = [one for one in crowd if world.owned_by(one) & new]
    known.tell("TOPIC_CREATED", *takers, partitions=new, since_ms=since_ms)


@incident("topic deletion")
def deletion(world: IncidentWorld, known: Known) -> None:
    world.create_topic("refunds", world.rng.randint(2, 6))
    crowd = _group(world, topics=("orders", "refunds"))
    lost = world.all_partitions("refunds")
    losers = [one for one in crowd if world.owned_by(one) & lost]
    since_ms = world.wall_now_ms
    world.delete_topic("refunds")
    world.settle()
    known.tell("TOPIC_DELETED", *losers, partitions=lost, since_ms=since_ms)


@incident("expression that matches another topic")
def expression(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, topics=(), regex="orders.*")
    since_ms = world.wall_now_ms
    world.create_topic("orders-eu", world.rng.randint(2, 6))
    world.live(2_000)
    world.settle()
    new = world.all_partitions("orders-eu")
    takers = [one for one in crowd if world.owned_by(one) & new]
    assert takers
    known.tell("REGEX_RESOLUTION_CHANGED", *takers, partitions=new, since_ms=since_ms)


@incident("removal by an operator")
def removal(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3)
    removed = world.rng.choice(crowd)
    held, since_ms = world.owned_by(removed), world.wall_now_ms
    removed.kill()
    world.remove(removed)
    world.settle()
    known.tell("MEMBER_REMOVED", removed, partitions=held, since_ms=since_ms)


# Several in one run.


@incident("slow revoker, and later a kill", session_timeout_ms=SESSION_MS)
def slow_and_killed(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3)
    _slow_revoker(world, known, crowd)
    _calm(world)
    _kill(world, known, crowd)


@incident("growth while a member is dead", session_timeout_ms=SESSION_MS)
def growth_while_dead(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3)
    dead = world.rng.choice(crowd)
    held, since_ms = world.owned_by(dead), world.wall_now_ms
    dead.kill()
    world.live(world.rng.uniform(1_000, 10_000))
    before = len(world.all_partitions("orders"))
    world.grow_topic("orders", before + 2 * len(crowd))
    world.work()
    grown_ms = world.wall_now_ms
    new = {p for p in world.all_partitions("orders") if p.partition >= before}
    world.live(0)
    takers = [one for one in world.processes if world.target_of(one) & new]
    known.tell("TOPIC_GROWN", *takers, partitions=new, since_ms=grown_ms)
    world.live_until(lambda: dead.member_id not in world.group(GROUP).members)
    world.settle()
    known.tell("SESSION_EXPIRED", dead, partitions=held, since_ms=since_ms)


@incident("flapping member beside a failover", session_timeout_ms=SESSION_MS)
def flapping_and_failover(world: IncidentWorld, known: Known) -> None:
    _group(world)
    _flap(world, known, by_kill=False)
    since_ms = world.wall_now_ms
    world.lose_leader(world.rng.uniform(300, 2_000))
    known.tell("FAILOVER", since_ms=since_ms)
    world.settle()


@incident("one never acknowledges, another is paused", session_timeout_ms=SESSION_MS)
def fenced_and_paused(world: IncidentWorld, known: Known) -> None:
    crowd = _group(world, smallest=3, rebalance_timeout_ms=15_000)
    _never_gives_up(world, known, crowd)
    _calm(world)
    still = world.rng.choice(crowd)
    held, since_ms = world.owned_by(still), world.wall_now_ms
    still.pause(SESSION_MS + world.rng.uniform(4_000, 20_000))
    world.live_until(lambda: still.member_id not in world.group(GROUP).members)
    world.live_until(lambda: still.member_id in world.group(GROUP).members)
    world.settle()
    known.tell("MEMBER_PAUSED", still, partitions=held, since_ms=since_ms)


# Classic groups.


@incident("group that waits for one member again and again")
def late_again_and_again(world: IncidentWorld, known: Known) -> None:
    """A member of a classic group joins late, or the leader assigns late, in every rebalance."""
    crowd = classic.crowd(world, world.rng.randint(2, 5))
    late, since_ms = world.rng.choice(crowd), world.wall_now_ms
    delay_ms = world.rng.uniform(13_000, 40_000)
    if late.client.is_leader and world.rng.random() < 0.5:
        late.sync_ms = delay_ms
    else:
        late.join_ms = delay_ms
    for _ in range(world.rng.randint(3, 5)):
        crowd.append(classic.start(world))
        classic.settle(world)
    known.tell("LATE_MEMBER", late, since_ms=since_ms)
    _calm(world)


def _timed_out(world: IncidentWorld, known: Known, *, in_sync: bool) -> None:
    crowd = classic.crowd(world, world.rng.randint(2, 5), rebalance_timeout_ms=20_000)
    late, since_ms = world.rng.choice(crowd), world.wall_now_ms
    member_id, before = late.member_id, (late.join_ms, late.sync_ms)
    if in_sync:
        late.sync_ms = NEVER
    else:
        late.join_ms = NEVER
    classic.start(world, rebalance_timeout_ms=20_000)
    world.live(15_000)
    held = classic.assigned_to(world, member_id)
    world.live_until(lambda: late.member_id != member_id)
    late.join_ms, late.sync_ms = before
    classic.settle(world)
    known.tell("REBALANCE_TIMED_OUT", member_id, partitions=held, since_ms=since_ms)
    _calm(world)


@incident("member that does not join again")
def never_joins(world: IncidentWorld, known: Known) -> None:
    _timed_out(world, known, in_sync=False)


@incident("member that does not sync")
def never_syncs(world: IncidentWorld, known: Known) -> None:
    _timed_out(world, known, in_sync=True)
