"""Events in a generated cluster over days, planned by seed before any record is written.

Services run the same number of instances; an instance is a process on a host and has one member in each of
its service's groups. An event in a process therefore affects several groups at once, in any shard. The plan
says which process restarts when and why, so that the right answers to queries of the log are known; it holds
one line for some thousand records. It simplifies reality: there is one topic, all groups have the same size,
and a process that crashes still leaves its groups, like a client whose library closes it.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .files import START_MS
from .groups import PARTITIONS

INSTANCES = 4
GROUPS_OF_SERVICE = 3
RECORDS_PER_GROUP = 5_000
GROUPS_MIN, GROUPS_MAX = 12, 5_000
DAY_MS = 86_400_000
RESTART_RECORDS = 28
"""Approximate records made by a member that leaves and returns in a group of four."""
DEPLOYMENTS_SHARE, PAUSES_SHARE, SCALINGS_SHARE = 0.045, 0.01, 0.01
"""Shares of all records; failovers come on top, and offset commits are the rest."""
DEPLOYMENTS_MIN = 3
FAILOVERS_PER_DAY = 2
STALLS_SHARE = 0.01
"""Share of the groups that have a partition whose commits stop for good."""
BAD_SHARE = 0.08
"""Share of the deployments that are bad."""
CRASHES, CRASHES_OF_WORST = (2, 3), 6
"""Crashes of an instance of a bad deployment before it stays up."""
DOWN_MS, UP_MS = (5_000, 12_000), (6_000, 12_000)
"""Milliseconds an instance is down, and milliseconds from its start to a crash or to readiness."""
INSTANCE_GAP_MS = 45_000
"""Milliseconds in a rolling restart from the readiness of one instance to the restart of the next."""
SETTLING_MS = 60_000
"""Milliseconds after the last restart in which events still count as caused by the deployment."""
QUIET_END = 0.04
"""Final share of the time in which nothing starts, so that running events can end."""
DEPLOYMENT_MS_MAX = (
    INSTANCES * ((1 + CRASHES_OF_WORST) * (DOWN_MS[1] + UP_MS[1]) + INSTANCE_GAP_MS) + SETTLING_MS
)
_NOUNS = ("billing", "orders", "search", "mail", "stock", "routes", "prices", "fraud", "audit", "carts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Groups that the same processes consume in."""

    number: int
    name: str
    groups: tuple[str, ...]

    def client(self, instance: int) -> tuple[str, str]:
        """Client id and host of an instance."""
        return f"{self.name}-{instance}", f"/10.{self.number >> 8}.{self.number & 255}.{instance + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A process stops or starts."""

    at_ms: int
    instance: int
    comes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A new version of a service, rolled out instance by instance."""

    service: int
    version: str
    from_ms: int
    until_ms: int
    crashes: int
    """Crashes of each instance, 0 for a good version; its member returns under a new id each time."""
    restarts: tuple[Restart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The node that led all shards failed, and another one takes over."""

    from_ms: int
    gap_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A process stands still for longer than its session, then continues under its member ids."""

    service: int
    instance: int
    from_ms: int
    back_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One more instance for a limited time."""

    service: int
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The commits of a partition stop while its owner stays."""

    group_id: str
    partition: int
    from_ms: int


Happening = Deployment | Failover | Pause | Scaling | Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All events other than commits."""

    seed: int
    records: int
    num_shards: int
    until_ms: int
    services: tuple[Service, ...]
    happenings: tuple[Happening, ...]
    """Sorted by time."""

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        return tuple(one for one in self.happenings if isinstance(one, Deployment))

    @property
    def worst(self) -> Deployment:
        """The deployment with the most crashes: the expected answer to "which one was bad"."""
        return max(self.deployments, key=lambda one: one.crashes)

    def write_deployments(self, path: str | Path) -> None:
        """Write a file like a deployment tool's: window, service, version."""
        with open(path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["from_ms", "until_ms", "service", "version"])
            for one in self.deployments:
                rows.writerow([one.from_ms, one.until_ms, self.services[one.service].name, one.version])


def planned(records: int, *, shards: int, days: float, seed: int) -> Plan:
    """A plan for a log of about this many records; raises `ValueError` if the time is too short."""
    if min(records, shards) < 1:
        raise ValueError(f"{records} records in {shards} shards are no log: give one or more of either")
    rng = random.Random(f"plan {seed}")
    until_ms = START_MS + round(days * DAY_MS)
    num_groups = min(max(records // RECORDS_PER_GROUP, GROUPS_MIN), GROUPS_MAX)
    services = tuple(_services(num_groups))
    last_ms = START_MS + round((until_ms - START_MS) * (1 - QUIET_END))
    made: list[Happening] = [*_deployments(records, services, last_ms, rng)]
    per_service = RESTART_RECORDS * GROUPS_OF_SERVICE
    for _ in range(max(round(records * PAUSES_SHARE / per_service), 1)):
        from_ms = rng.randrange(START_MS + DAY_MS // 100, last_ms)
        who, instance = rng.randrange(len(services)), rng.randrange(INSTANCES)
        made.append(
            Pause(
                service=who,
                instance=instance,
                from_ms=from_ms,
                back_ms=from_ms + rng.randrange(50_000, 90_000),
            )
        )
    for _ in range(max(round(records * SCALINGS_SHARE / per_service), 1)):
        from_ms = rng.randrange(START_MS, last_ms)
        until = from_ms + rng.randrange(600_000, 7_200_000)
        made.append(Scaling(service=rng.randrange(len(services)), from_ms=from_ms, until_ms=until))
    for _ in range(max(round(days * FAILOVERS_PER_DAY), 1)):
        made.append(Failover(from_ms=rng.randrange(START_MS, last_ms), gap_ms=rng.randrange(1_500, 8_000)))
    made += _stalls(services, last_ms, rng)
    return Plan(
        seed=seed,
        records=records,
        num_shards=shards,
        until_ms=until_ms,
        services=services,
        happenings=tuple(sorted(made, key=lambda one: one.from_ms)),
    )


def _services(num_groups: int) -> Iterator[Service]:
    for number in range(-(-num_groups // GROUPS_OF_SERVICE)):
        name = f"{_NOUNS[number % len(_NOUNS)]}-{number:04d}"
        sizes = range(min(GROUPS_OF_SERVICE, num_groups - number * GROUPS_OF_SERVICE))
        yield Service(number=number, name=name, groups=tuple(f"{name}.{'abc'[place]}" for place in sizes))


def _deployments(
    records: int, services: tuple[Service, ...], last_ms: int, rng: random.Random
) -> Iterator[Deployment]:
    """Repeated deployments of each service, one after the other."""
    per_deployment = RESTART_RECORDS * GROUPS_OF_SERVICE * INSTANCES
    count = max(round(records * DEPLOYMENTS_SHARE / per_deployment), DEPLOYMENTS_MIN)
    worst = rng.randrange(count)
    rounds = -(-count // len(services))
    slot_ms = (last_ms - START_MS) // rounds
    if slot_ms // 2 < DEPLOYMENT_MS_MAX:  # from the latest start in one slot to the earliest in the next
        needed = 2 * DEPLOYMENT_MS_MAX * rounds / (1 - QUIET_END) / DAY_MS
        raise ValueError(
            f"{rounds} deployments of a service take {needed:.2f} days: give more, or fewer records"
        )
    order = rng.sample(range(len(services)), len(services))
    for number in range(count):
        turn, place = divmod(number, len(services))
        crashes = rng.choice(CRASHES) if rng.random() < BAD_SHARE else 0
        if number == worst:
            crashes = CRASHES_OF_WORST
        from_ms = START_MS + turn * slot_ms + slot_ms // 20 + rng.randrange(slot_ms // 2)
        restarts = tuple(_restarts(from_ms, crashes, rng))
        yield Deployment(
            service=order[place],
            version=f"1.{turn}",
            from_ms=from_ms,
            until_ms=restarts[-1].at_ms + SETTLING_MS,
            crashes=crashes,
            restarts=restarts,
        )


def _restarts(at_ms: int, crashes: int, rng: random.Random) -> Iterator[Restart]:
    for instance in range(INSTANCES):
        for _ in range(1 + crashes):
            yield Restart(at_ms=at_ms, instance=instance, comes=False)
            at_ms += rng.randrange(*DOWN_MS)
            yield Restart(at_ms=at_ms, instance=instance, comes=True)
            at_ms += rng.randrange(*UP_MS)
        at_ms += INSTANCE_GAP_MS


def _stalls(services: tuple[Service, ...], last_ms: int, rng: random.Random) -> Iterator[Stall]:
    groups = [group for service in services for group in service.groups]
    from_ms = START_MS + (last_ms - START_MS) * 2 // 3
    for group_id in sorted(rng.sample(groups, max(round(len(groups) * STALLS_SHARE), 1))):
        yield Stall(
            group_id=group_id, partition=rng.randrange(PARTITIONS), from_ms=rng.randrange(from_ms, last_ms)
        )
