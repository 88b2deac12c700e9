"""The setting shared by all chapters of the demo: cluster, consumers, display, and the claims so far.

Whatever happens, `end` leaves no process behind.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from cluster.launching.launcher import ClusterProcess, LaunchError, launch_cluster
from history.render import plural
from quorate.commands.options import launch_failure
from quorate.demo.claims import Claim
from quorate.demo.display import Display
from quorate.demo.fleet import Fleet
from quorate.demo.watch import SeenGroup, agree, see_group, see_leader, wait_until
from quorate.errors import CommandError, ExitCode

NUM_NODES = 3
GROUP, TOPIC, NUM_PARTITIONS = "billing", "orders", 12
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500  # keeps the demo short; a rebalance takes about two heartbeats
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "scratch.log.enable": "true",  # so that a reader who points a client at the demo finds topics that work
    "leader.balance.delay.ms": "600000",  # leadership only changes when the demo asks for it
}

REBALANCE_TIMEOUT_S = 15.0
LEADER_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Result:
    """The outcome of the demo; `as_dict` makes it JSON-ready."""

    claims: list[Claim] = field(default_factory=list)
    outage_s: float = -1.0
    seconds: float = -1.0
    num_acknowledged: int = 0

    @property
    def held(self) -> bool:
        return all(claim.held for claim in self.claims)

    def as_dict(self) -> dict[str, object]:
        return {
            "held": self.held,
            "seconds": round(self.seconds, 2),
            "outage_seconds": round(self.outage_s, 2),
            "acknowledged_commits": self.num_acknowledged,
            "claims": [
                {"claim": c.text, "held": c.held, "contradiction": c.contradiction} for c in self.claims
            ],
        }


class Scene:
    """A cluster of three in `directory`/cluster, its consumers' files in `directory`/consumers."""

    def __init__(self, directory: Path, display: Display) -> None:
        self.data = directory / "cluster"
        self.display = display
        self.result = Result()
        self._consumers = directory / "consumers"
        self._cluster: ClusterProcess | None = None
        self._fleet: Fleet | None = None

    @property
    def cluster(self) -> ClusterProcess:
        assert self._cluster is not None, "the cluster has not been launched"
        return self._cluster

    @property
    def fleet(self) -> Fleet:
        assert self._fleet is not None, "no consumer has been started"
        return self._fleet

    def launch(self) -> None:
        """Start the nodes; raises `CommandError`."""
        try:
            self._cluster = launch_cluster(self.data, NUM_NODES, settings=SETTINGS)
        except LaunchError as error:
            raise launch_failure(error) from error

    def start_consumers(self, names: tuple[str, ...]) -> None:
        if self._fleet is None:
            self._consumers.mkdir()
            self._fleet = Fleet(self._consumers, self.cluster.bootstrap, GROUP, TOPIC)
        for name in names:
            self._fleet.start(name)

    def end(self) -> None:
        """End every process at once; has no effect on those that have ended."""
        if self._fleet is not None:
            self._fleet.stop_all()
        if self._cluster is not None:
            self._cluster.kill()

    # Observations.

    @property
    def urls(self) -> list[str]:
        """URLs of the running nodes."""
        return [node.url for node in self.cluster.nodes if node.is_running]

    def group(self) -> SeenGroup:
        """The group's current state; raises `CommandError` if no node shows it."""
        seen = see_group(self.urls, GROUP, TOPIC)
        if seen is None:
            raise CommandError(f"no node shows group {GROUP} over HTTP", code=ExitCode.FAILED)
        return seen

    def leader_of(self, shard: int) -> int:
        """The shard's leader, after waiting for an election; raises `CommandError` if that takes too long."""
        found: list[int] = []

        def ready(_elapsed_s: float) -> bool:
            leader = see_leader(self.urls, shard)
            if leader is not None:
                found.append(leader)
            return bool(found)

        wait_until(f"an election of shard {shard}", ready, LEADER_TIMEOUT_S)
        return found[0]

    # Output.

    def claim(self, claim: Claim) -> None:
        self.result.claims.append(claim)
        self.display.claim(claim.held, claim.words())

    def balanced(self, what: str) -> None:
        """Wait until the running consumers share the topic, all of them committing."""
        fleet = self.fleet
        names = {one.name for one in fleet.running}
        since_ms = now_ms()

        def ready(elapsed_s: float) -> bool:
            evidence = fleet.evidence()
            seen = see_group(self.urls, GROUP, TOPIC)
            if agree(seen, evidence, names, NUM_PARTITIONS):
                return all(evidence[name].commits_since(since_ms) for name in names)
            have = 0 if seen is None else len(seen.members)
            wanted = f"{len(names)} own and commit {NUM_PARTITIONS} partitions"
            progress = f"{plural(have, 'member')}, waiting until {wanted}"
            self.display.live(f"{elapsed_s:5.2f} s  {progress}", change=progress)
            return False

        took_s = wait_until(what, ready, REBALANCE_TIMEOUT_S)
        seen = self.group()
        self.display.line(f"epoch {seen.epoch}, balanced after {took_s:.1f} s: {_shares(seen)}")


def now_ms() -> int:
    """Wall clock in ms, as the consumers write it."""
    return round(time.time() * 1000)


def _shares(seen: SeenGroup) -> str:
    sizes = sorted((len(partitions) for partitions in seen.owners().values()), reverse=True)
    return f"{len(sizes)} members own {'+'.join(map(str, sizes))} partitions"
