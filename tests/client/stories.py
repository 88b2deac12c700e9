"""Stories of whole consumers with the real coordinator, in virtual time, in which everything fails."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from cluster.simulator.virtual_consumer import GRACE_MS
from tests.client.model_cluster import NO_FAULTS, NODES, ModelCluster, NetworkFaults
from tests.client.model_users import CLOSE_MS, Group, Habits, User
from tests.support.round_robin import RoundRobin

STORM: Final = NetworkFaults(cut=0.15, silent=0.05, unanswered=0.15, unheard=0.05, late=0.1, doubled=0.05)
FAULTS: Final = NetworkFaults(cut=0.04, silent=0.01, unanswered=0.04, unheard=0.01, late=0.04, doubled=0.01)

LATE_MS: Final = 6_000.0
"""The time of a computation that is late."""

STEPS: Final = 7
STEP_MS: Final = 3_000.0
"""The longest time between two steps of a story."""

PROGRESS_MS: Final = 60_000.0
"""Time after the last fault in which every message is handed out and each member is STABLE. The longest wait
is for a connection that went silent in its set-up, after others to the node had failed: up to 36 s (KIP-601).
Besides: the session of a dead member, the rebalance timeout of one that hangs, a lost answer."""


class ConsumerStory:
    """One random run: programs come, go, hang and change their topics; nodes die; the network fails."""

    def __init__(self, seed: int, *, has_assignors: bool = False) -> None:
        self.has_assignors = has_assignors
        """Whether the members compute their group's assignment themselves."""
        self.cluster = ModelCluster(seed, FAULTS)
        self.rng = self.cluster.rng
        self.group = Group(self.cluster)
        self.cluster.create_topic("orders", 4)
        self.cluster.create_topic("bills", 2)
        for at in self.cluster.leaders:
            self.cluster.produce(at, 3)
        self.group.habits = self.rng.choice([
            Habits(callback_ms=5.0, work_ms=20.0),
            Habits(callback_ms=2_000.0, raises=0.2, work_ms=200.0),
            Habits(callback_ms=9_000.0, work_ms=500.0),
            Habits(callback_ms=100.0, raises=0.3, never_returns=0.1, work_ms=3_000.0),
        ])  # fmt: skip
        self.started = 0
        for _ in range(self.rng.randint(1, 3)):
            self.start()

    def start(self, instance_id: str | None = None) -> User:
        self.started += 1
        if instance_id is None and self.started == 2:
            instance_id = "static"
        topics = self.rng.choice([["orders", "bills"], ["orders", "bills"], ["orders"]])
        name = f"u{self.started}"
        own = {"group_local_assignors": [RoundRobin(name, self.rng, LATE_MS)]} if self.has_assignors else {}
        return self.group.user(name, topics, group_instance_id=instance_id, **own)

    def step(self) -> None:
        cluster, rng = self.cluster, self.rng
        for at in rng.sample([*cluster.leaders], 2):
            cluster.produce(at, rng.randint(1, 4))
        living = self.group.living
        if not living:
            self.start()
            return
        user = rng.choice(living)
        match rng.randrange(12):
            case 0:
                topics = rng.sample(["orders", "bills"], rng.randint(1, 2))
                user.orders.append(lambda: user.subscribe(topics))
            case 1:
                timeout_ms = rng.choice([0.0, 100.0, 5_000.0])
                user.orders.append(lambda: user.unsubscribe(timeout_ms))
                user.orders.append(lambda: user.subscribe(["orders", "bills"]))
            case 2:
                cluster.move_coordinator(rng.choice([n for n in NODES if n not in cluster.down]))
            case 3:
                self.start()
            case 4:
                user.kill()
                self.start(user.settings.group_instance_id)
            case 5:
                user.freeze(rng.choice([500.0, 3_000.0, 12_000.0]))
            case 6:
                cluster.grow_topic("orders")
            case 7:
                cluster.faults = rng.choice([FAULTS, NO_FAULTS, STORM])
            case 8 if not cluster.down:
                node = rng.choice(NODES)
                cluster.kill(node)
                cluster.agenda.after(rng.random() * STEP_MS, cluster.boot, node)
            case 9:
                user.wall_ms += rng.choice([-3_600_000, 86_400_000])
            case 10:
                user.is_closing = True
            case 11:
                user.cancel()

    def play(self) -> None:
        """Play the story to its end, at which everything must come to rest and every program must end."""
        for _ in range(STEPS):
            self.cluster.run(self.rng.random() * STEP_MS)
            self.step()
        self.rest()
        for user in self.group.living:
            user.is_closing = True
        self.cluster.run(CLOSE_MS + 3 * GRACE_MS)
        assert not self.group.living, [str(user.consumer.assembly.explain()) for user in self.group.living]

    def rest(self) -> None:
        """End all faults, and wait until every message is handed out."""
        cluster = self.cluster
        cluster.faults, self.group.habits = NO_FAULTS, Habits()
        for node in NODES:
            cluster.boot(node)
        for user in self.group.living:  # a callback that never returns is somebody's to cancel
            user.orders.clear()
            if user.is_stuck:
                user.cancel()
        self.start()
        self.start()
        for user in self.group.living:
            user.orders.append(lambda user=user: user.subscribe(["orders", "bills"]))  # type: ignore[misc]
        end_ms = cluster.agenda.now_ms + PROGRESS_MS
        while not self.group.is_done():
            if cluster.agenda.now_ms >= end_ms:
                due = {at: log.end for at, log in cluster.logs.items()}
                what = [str(user.consumer.assembly.explain()) for user in self.group.living]
                self.group.fail(f"no rest: {self.group.handed_out} of {due} was handed out, {what}")
            cluster.run(500.0)


def play(seed: int, **how: bool) -> Counter[str]:
    """Play a story. Returns the faults and errors that its users met."""
    log, story = logging.getLogger("quorate.consumer"), ConsumerStory(seed, **how)
    log.disabled = True  # its warnings are what the story is made of
    try:
        story.play()
    finally:
        log.disabled = False
        for user in story.group.users:
            user.kill()
    return story.cluster.met + story.group.errors


def play_many(seeds: range, **how: bool) -> Counter[str]:
    """Play stories. Returns the faults and errors that their users met."""
    return sum((play(seed, **how) for seed in seeds), Counter())
