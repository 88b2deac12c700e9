"""The demo's story: a rebalance, a crash, a recovery, and then the proof from the files alone.

Two rules make it worth something. The clients are stock ones in processes of their own, and what they were
told is taken from their own files; and once the node has stopped, every statement is derived from its
directory by the same readers that `quorate log` uses. A claim that does not hold is printed as such and
makes the exit code 1.

Whatever happens, Ctrl-C included, every process that was started is ended before `run` returns.
"""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from cluster.launcher import LaunchError, NodeProcess, launch_node
from quorate.client import Client
from quorate.commands.options import launch_failure
from quorate.demo.claims import Claim, no_partition_moved
from quorate.demo.display import Display
from quorate.demo.evidence import Evidence
from quorate.demo.fleet import Fleet
from quorate.demo.proof import prove
from quorate.demo.watch import SeenGroup, agree, see_group, wait_until
from quorate.errors import CommandError, ExitCode

GROUP, TOPIC, NUM_PARTITIONS = "billing", "orders", 12
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500  # the demo is to be short; a rebalance takes about two heartbeats
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
FIRST = tuple(f"consumer-{number}" for number in range(1, 7))
JOINS_LATER, LEAVES, IS_KILLED = "consumer-7", "consumer-2", "consumer-3"

REBALANCE_TIMEOUT_S = 15.0
RECOVERY_TIMEOUT_S = 15.0
STEADY_S = 0.5  # a moment of plain committing before each blow, so that there is something to lose


@dataclass(slots=True)
class Result:
    """How the demo went; JSON-ready through `as_dict`."""

    claims: list[Claim] = field(default_factory=list)
    recovery_s: float = -1.0
    seconds: float = -1.0
    num_acknowledged: int = 0

    @property
    def held(self) -> bool:
        return all(claim.held for claim in self.claims)

    def as_dict(self) -> dict[str, object]:
        return {
            "held": self.held,
            "seconds": round(self.seconds, 2),
            "recovery_seconds": round(self.recovery_s, 2),
            "acknowledged_commits": self.num_acknowledged,
            "claims": [
                {"claim": c.text, "held": c.held, "contradiction": c.contradiction} for c in self.claims
            ],
        }


class Tour:
    """One run of the demo in `directory`, which must exist; tells its story on `display`."""

    def __init__(self, directory: Path, display: Display) -> None:
        self._data = directory / "node"
        self._consumers = directory / "consumers"
        self._display = display
        self._result = Result()
        self._node: NodeProcess | None = None
        self._fleet: Fleet | None = None

    def run(self) -> Result:
        """Tell the whole story; raises `CommandError` when a step does not happen at all."""
        started_s = time.monotonic()
        previous = signal.signal(signal.SIGTERM, _interrupt)
        try:
            node = self._start_node()
            fleet = self._start_consumers(node)
            self._membership(node, fleet)
            self._crash(node, fleet)
            evidence = self._stop(node, fleet)
            self._prove(evidence)
        finally:
            self._end_everything()
            signal.signal(signal.SIGTERM, previous)
        self._result.seconds = time.monotonic() - started_s
        return self._result

    # ---- chapters ----

    def _start_node(self) -> NodeProcess:
        self._display.step("One node")
        try:
            node = self._node = launch_node(self._data, settings=SETTINGS)
        except LaunchError as error:
            raise launch_failure(error) from error
        self._display.line(
            f"node {node.node_id} serves Kafka clients at {node.host}:{node.port} (pid {node.pid})"
        )
        self._display.line(
            f"session timeout {SESSION_TIMEOUT_MS / 1000:g} s for this demo (the default is 45 s), "
            f"heartbeats every {HEARTBEAT_INTERVAL_MS / 1000:g} s (default 1 s)"
        )
        with Client(_bootstrap(node)) as client:
            client.create_topic(TOPIC, NUM_PARTITIONS)
        return node

    def _start_consumers(self, node: NodeProcess) -> Fleet:
        self._display.step(
            f"Six confluent-kafka consumers join group {GROUP} on {TOPIC}, {NUM_PARTITIONS} partitions"
        )
        self._consumers.mkdir()
        fleet = self._fleet = Fleet(self._consumers, _bootstrap(node), GROUP, TOPIC)
        for name in FIRST:
            fleet.start(name)
        self._balanced(node, fleet, "the first assignment")
        return fleet

    def _membership(self, node: NodeProcess, fleet: Fleet) -> None:
        self._display.step(f"{JOINS_LATER} joins")
        fleet.start(JOINS_LATER)
        self._balanced(node, fleet, f"the rebalance after {JOINS_LATER} joined")

        self._display.step(f"{LEAVES} leaves cleanly")
        leaver = fleet.consumers[LEAVES]
        leaver.ask_to_leave()
        if not leaver.wait_gone():
            raise CommandError(f"{LEAVES} did not end cleanly, see {leaver.errors}")
        self._balanced(node, fleet, f"the rebalance after {LEAVES} left")

        self._display.step(f"kill -9 of {IS_KILLED}: its session ends after {SESSION_TIMEOUT_MS / 1000:g} s")
        fleet.consumers[IS_KILLED].kill()
        self._balanced(node, fleet, f"the expiry of {IS_KILLED}")
        time.sleep(STEADY_S)

    def _crash(self, node: NodeProcess, fleet: Fleet) -> None:
        before = self._seen(node)
        owned_before = {one.name: one.evidence().owned for one in fleet.running}
        self._display.step(f"kill -9 of the node under {len(owned_before)} committing consumers, and restart")
        killed_ms = _now_ms()
        killed_s = time.monotonic()
        node.kill()
        restarted_ms = _now_ms()
        restart = _Restart(node)
        restart.start()
        try:
            self._recovered(node, fleet, restart, restarted_ms, killed_s)
        finally:
            restart.join()
        self._display.line(f"restarted with the same command (pid {node.pid})")
        took = f"{self._result.recovery_s:.2f} s"
        self._claim(Claim(f"every member's heartbeats and commits went on {took} after the kill"))
        time.sleep(STEADY_S)
        self._claim(no_partition_moved(owned_before, fleet.evidence(), killed_ms))
        self._claim(_same_group(before, self._seen(node)))

    def _recovered(
        self, node: NodeProcess, fleet: Fleet, restart: _Restart, restarted_ms: int, killed_s: float
    ) -> None:
        names = {one.name for one in fleet.running}

        def ready(_elapsed_s: float) -> bool:
            restart.check()
            seen = see_group(_url(node), GROUP, TOPIC)
            members = {} if seen is None else seen.members
            beating = sum(
                members[name].last_heartbeat_ms >= restarted_ms for name in names if name in members
            )
            committing = sum(one.evidence().last_acknowledged_ms() >= restarted_ms for one in fleet.running)
            progress = f"of {len(names)} members {beating} heartbeat again and {committing} commit again"
            self._result.recovery_s = time.monotonic() - killed_s
            self._display.live(f"{self._result.recovery_s:5.2f} s  {progress}", change=progress)
            return beating == committing == len(names)

        wait_until("that every member's heartbeats and commits went on", ready, RECOVERY_TIMEOUT_S)

    def _stop(self, node: NodeProcess, fleet: Fleet) -> dict[str, Evidence]:
        self._display.step("Everything stops")
        stuck = fleet.leave_all()
        self._claim(Claim("every consumer left cleanly", f"{', '.join(stuck)} did not" if stuck else ""))
        exit_code = node.stop()
        self._claim(Claim("the node stopped cleanly", f"exit code {exit_code}" if exit_code else ""))
        return fleet.evidence()

    def _prove(self, evidence: dict[str, Evidence]) -> None:
        self._display.step("From the files alone")
        told = dict.fromkeys((*FIRST, JOINS_LATER), "joined") | {LEAVES: "left", IS_KILLED: "expired"}
        proof = prove(self._data, GROUP, TOPIC, NUM_PARTITIONS, evidence, told)
        self._result.num_acknowledged = proof.num_acknowledged
        for claim in proof.claims:
            self._claim(claim)
        self._display.step("Every epoch of the group: when, why, who owned what")
        for line in proof.timeline:
            self._display.raw(line)

    # ---- helpers ----

    def _balanced(self, node: NodeProcess, fleet: Fleet, what: str) -> None:
        names = {one.name for one in fleet.running}

        def ready(elapsed_s: float) -> bool:
            evidence = fleet.evidence()
            seen = see_group(_url(node), GROUP, TOPIC)
            if agree(seen, evidence, names, NUM_PARTITIONS):
                return all(evidence[name].num_acknowledged for name in names)
            have = 0 if seen is None else len(seen.members)
            progress = (
                f"{have} members, waiting until {len(names)} own and commit {NUM_PARTITIONS} partitions"
            )
            self._display.live(f"{elapsed_s:5.2f} s  {progress}", change=progress)
            return False

        took_s = wait_until(what, ready, REBALANCE_TIMEOUT_S)
        seen = self._seen(node)
        self._display.line(f"epoch {seen.epoch}, balanced after {took_s:.1f} s: {_shares(seen)}")

    def _seen(self, node: NodeProcess) -> SeenGroup:
        seen = see_group(_url(node), GROUP, TOPIC)
        if seen is None:
            raise CommandError(f"the node does not show group {GROUP} over HTTP", code=ExitCode.FAILED)
        return seen

    def _claim(self, claim: Claim) -> None:
        self._result.claims.append(claim)
        self._display.claim(claim.held, claim.words())

    def _end_everything(self) -> None:
        if self._fleet is not None:
            self._fleet.stop_all()
        if self._node is not None and self._node.poll() is None:
            self._node.kill()


class _Restart(threading.Thread):
    """Starts the node again while the story goes on; `check` raises what went wrong."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(name="restart")
        self._node_to_start = node
        self._error: LaunchError | None = None

    def run(self) -> None:
        try:
            self._node_to_start.start()
        except LaunchError as error:
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise launch_failure(self._error)


def _same_group(before: SeenGroup, after: SeenGroup) -> Claim:
    text = f"the group is at epoch {before.epoch} as before, with the same members and owners"
    if after.epoch != before.epoch:
        return Claim(text, f"it is at epoch {after.epoch}")
    ids_before = {name: member.member_id for name, member in before.members.items()}
    ids_after = {name: member.member_id for name, member in after.members.items()}
    if ids_before != ids_after:
        return Claim(text, f"members were {sorted(ids_before.items())}, are {sorted(ids_after.items())}")
    return Claim(text, "" if before.owners() == after.owners() else f"owners are {after.owners()}")


def _shares(seen: SeenGroup) -> str:
    sizes = sorted((len(partitions) for partitions in seen.owners().values()), reverse=True)
    return f"{len(sizes)} members own {'+'.join(map(str, sizes))} partitions"


def _bootstrap(node: NodeProcess) -> str:
    return f"{node.host}:{node.port}"


def _url(node: NodeProcess) -> str:
    return f"http://{node.host}:{node.http_port}"


def _now_ms() -> int:
    return round(time.time() * 1000)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
