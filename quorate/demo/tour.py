"""The demo's script: three nodes, the leader killed, nothing lost; then the proof from the files alone.

Two rules make it meaningful. The clients are stock ones in processes of their own, and the acknowledgements
they received are taken from their own files. Once the nodes have stopped, every statement is derived from
their directories by the same readers that `quorate log` uses. A claim that does not hold is printed as such
and makes the exit code 1.

Whatever happens, Ctrl-C included, every process that was started is ended before `run` returns.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from cluster.launching.launcher import LaunchError, NodeProcess
from history.render import plural
from quorate.client import Client
from quorate.commands.cluster import ask_leader
from quorate.commands.options import launch_failure
from quorate.demo.claims import Claim, no_partition_moved, nothing_noticed
from quorate.demo.display import Display
from quorate.demo.evidence import ConsumerEvidence
from quorate.demo.proof import Takeover, prove
from quorate.demo.scene import (
    GROUP,
    HEARTBEAT_INTERVAL_MS,
    NUM_PARTITIONS,
    SESSION_TIMEOUT_MS,
    TOPIC,
    Result,
    Scene,
    now_ms,
)
from quorate.demo.watch import SeenGroup, see_group, see_leader, see_shards, wait_until
from quorate.errors import CommandError
from records import METADATA_SHARD, shard_of

FIRST = tuple(f"consumer-{number}" for number in range(1, 7))
JOINS_LATER, LEAVES, IS_KILLED = "consumer-7", "consumer-2", "consumer-3"

OUTAGE_TIMEOUT_S = 15.0
CATCH_UP_TIMEOUT_S = 15.0
TRANSFER_TIMEOUT_S = 5.0
STEADY_S = 0.5  # a moment of plain committing before each failure, so that there is something to lose


class Tour:
    """One run of the demo in `directory`, which must exist; prints to `display`."""

    def __init__(self, directory: Path, display: Display) -> None:
        self._scene = Scene(directory, display)
        self._display = display
        self._shard = METADATA_SHARD
        """The group's shard, once it is known."""
        self._takeovers: list[Takeover] = []

    def run(self) -> Result:
        """Run all chapters; raises `CommandError` if a step does not complete."""
        started_s = time.monotonic()
        previous = signal.signal(signal.SIGTERM, _interrupt)
        try:
            self._start_nodes()
            self._start_consumers()
            dead = self._kill_the_leader()
            self._bring_back(dead)
            self._membership()
            self._hand_over(dead)
            evidence = self._stop()
            self._prove(evidence)
        finally:
            self._scene.end()
            signal.signal(signal.SIGTERM, previous)
        self._scene.result.seconds = time.monotonic() - started_s
        return self._scene.result

    # ---- chapters ----

    def _start_nodes(self) -> None:
        scene = self._scene
        self._display.step("Three nodes")
        scene.launch()
        shards = see_shards(scene.urls[0])
        self._shard = shard_of(GROUP, len(shards) - 1)
        leaders = {shard: scene.leader_of(shard) for shard in sorted(shards)}
        for node in scene.cluster.nodes:
            led = [_shard_name(shard) for shard, leader in leaders.items() if leader == node.node_id]
            leads = ", ".join(led) or "nothing"
            self._display.line(f"node {node.node_id} at {node.bootstrap} (pid {node.pid}) leads {leads}")
        self._display.line(
            f"session timeout {SESSION_TIMEOUT_MS / 1000:g} s for this demo (the default is 45 s), "
            f"heartbeats every {HEARTBEAT_INTERVAL_MS / 1000:g} s (default 1 s)"
        )
        with Client(scene.cluster.bootstrap) as client:
            client.create_topic(TOPIC, NUM_PARTITIONS)

    def _start_consumers(self) -> None:
        self._display.step(
            f"Six confluent-kafka consumers join group {GROUP} on {TOPIC}, {NUM_PARTITIONS} partitions"
        )
        self._scene.start_consumers(FIRST)
        self._scene.balanced("the first assignment")
        time.sleep(STEADY_S)

    def _kill_the_leader(self) -> NodeProcess:
        scene, fleet = self._scene, self._scene.fleet
        before = scene.group()
        owned_before = {one.name: one.evidence().owned for one in fleet.running}
        leader = scene.leader_of(self._shard)
        self._display.step(
            f"kill -9 of node {leader}, which leads {_shard_name(self._shard)}, that of {GROUP}, "
            f"under {len(owned_before)} committing consumers"
        )
        node = scene.cluster.node(leader)
        killed_ms, killed_s = now_ms(), time.monotonic()
        node.kill()
        self._outage(now_ms(), killed_s)
        took = f"{scene.result.outage_s:.2f} s"
        scene.claim(Claim(f"every member's heartbeats and commits continued {took} after the kill"))
        self._takeover(leader)
        time.sleep(STEADY_S)
        scene.claim(no_partition_moved(owned_before, fleet.evidence(), killed_ms))
        scene.claim(_same_group(before, scene.group()))
        return node

    def _outage(self, dead_ms: int, killed_s: float) -> None:
        """Update the live line until every member's heartbeat and next commit have been accepted."""
        scene, fleet = self._scene, self._scene.fleet
        names = {one.name for one in fleet.running}

        def ready(_elapsed_s: float) -> bool:
            seen = see_group(scene.urls, GROUP, TOPIC)
            members = {} if seen is None else seen.members
            beating = sum(members[name].last_heartbeat_ms >= dead_ms for name in names if name in members)
            committing = sum(one.evidence().commits_since(dead_ms) for one in fleet.running)
            scene.result.outage_s = time.monotonic() - killed_s
            progress = f"of {len(names)} members {beating} heartbeat again and {committing} commit again"
            if seen is None:
                progress = "the shard has no leader"
            self._display.live(f"{scene.result.outage_s:5.2f} s  {progress}", change=progress)
            return beating == committing == len(names)

        wait_until("that every member's heartbeats and commits continued", ready, OUTAGE_TIMEOUT_S)

    def _takeover(self, before: int) -> None:
        after = self._scene.leader_of(self._shard)
        self._takeovers.append(Takeover(before, after))
        term = see_shards(self._scene.cluster.node(after).url)[self._shard]["term"]
        self._display.line(f"node {after} leads {_shard_name(self._shard)} now, in term {term}")

    def _bring_back(self, node: NodeProcess) -> None:
        scene = self._scene
        self._display.step(f"Node {node.node_id} is restarted and catches up")
        begin_s = time.monotonic()
        with ThreadPoolExecutor(1) as starter:
            self._catch_up(node, starter.submit(_start, node))
        took_s = time.monotonic() - begin_s
        scene.claim(Claim(f"node {node.node_id} has all committed entries {took_s:.1f} s after its start"))
        self._display.line(f"restarted with the same command (pid {node.pid})")

    def _catch_up(self, node: NodeProcess, start: Future[None]) -> None:
        """Wait until the node has applied, in every shard, what was committed when it served again."""
        others = [other.url for other in self._scene.cluster.nodes if other is not node]
        wanted: dict[int, int] = {}

        def ready(elapsed_s: float) -> bool:
            if start.done() and not wanted:
                start.result()
                for url in others:
                    for shard, seen in see_shards(url).items():
                        wanted[shard] = max(seen["committed_index"], wanted.get(shard, 0))
            has = see_shards(node.url)
            missing = sum(max(0, index - has[s]["applied_index"]) for s, index in wanted.items() if s in has)
            progress = f"{plural(missing, 'entry')} behind" if wanted and has else "it starts"
            self._display.live(f"{elapsed_s:5.2f} s  {progress}", change=progress)
            return bool(wanted) and has.keys() == wanted.keys() and not missing

        wait_until(f"that node {node.node_id} caught up", ready, CATCH_UP_TIMEOUT_S)

    def _membership(self) -> None:
        scene, fleet = self._scene, self._scene.fleet
        self._display.step(f"{JOINS_LATER} joins")
        scene.start_consumers((JOINS_LATER,))
        scene.balanced(f"the rebalance after {JOINS_LATER} joined")

        self._display.step(f"{LEAVES} leaves cleanly")
        leaver = fleet.consumers[LEAVES]
        leaver.ask_to_leave()
        if not leaver.wait_gone():
            raise CommandError(f"{LEAVES} did not end cleanly, see {leaver.errors}")
        scene.balanced(f"the rebalance after {LEAVES} left")

        self._display.step(
            f"kill -9 of {IS_KILLED}: its session expires after {SESSION_TIMEOUT_MS / 1000:g} s"
        )
        fleet.consumers[IS_KILLED].kill()
        scene.balanced(f"the expiry of {IS_KILLED}")
        time.sleep(STEADY_S)

    def _hand_over(self, to: NodeProcess) -> None:
        scene, fleet = self._scene, self._scene.fleet
        leader = scene.leader_of(self._shard)
        if leader == to.node_id:
            raise CommandError(f"node {leader} already leads the shard that is to be transferred to it")
        self._display.step(f"Node {leader} hands {_shard_name(self._shard)} over to node {to.node_id}")
        failed_before = {one.name: len(one.evidence().failures) for one in fleet.running}
        asked_ms = now_ms()
        path = f"/v1/shards/{self._shard}/transfer"
        ask_leader(",".join(scene.urls), path, {"to": to.node_id}, TRANSFER_TIMEOUT_S)

        def ready(_elapsed_s: float) -> bool:
            return see_leader(scene.urls, self._shard) == to.node_id

        wait_until(f"that node {to.node_id} leads", ready, TRANSFER_TIMEOUT_S)
        self._takeover(leader)
        led_ms = now_ms()

        def committing(_elapsed_s: float) -> bool:
            return all(one.evidence().commits_since(led_ms) for one in fleet.running)

        wait_until("that every member commits at the new leader", committing, TRANSFER_TIMEOUT_S)
        time.sleep(2 * HEARTBEAT_INTERVAL_MS / 1000)  # every member has sent a heartbeat meanwhile
        scene.claim(nothing_noticed(failed_before, fleet.evidence(), asked_ms))

    def _stop(self) -> dict[str, ConsumerEvidence]:
        scene, fleet = self._scene, self._scene.fleet
        self._display.step("All processes stop")
        stuck = fleet.leave_all()
        scene.claim(
            Claim("every consumer left cleanly", f"{', '.join(stuck)} did not leave" if stuck else "")
        )
        codes = scene.cluster.stop()
        unclean = [f"node {node_id} with exit code {code}" for node_id, code in codes.items() if code]
        scene.claim(Claim(f"all {len(codes)} nodes stopped cleanly", ", ".join(unclean)))
        return fleet.evidence()

    def _prove(self, evidence: dict[str, ConsumerEvidence]) -> None:
        scene = self._scene
        self._display.step("From the files alone")
        proof = prove(
            scene.data,
            {f"node {node.node_id}": node.data for node in scene.cluster.nodes},
            GROUP,
            TOPIC,
            NUM_PARTITIONS,
            evidence,
            dict.fromkeys((*FIRST, JOINS_LATER), "joined") | {LEAVES: "left", IS_KILLED: "expired"},
            self._takeovers,
        )
        scene.result.num_acknowledged = proof.num_acknowledged
        for claim in proof.claims:
            scene.claim(claim)
        self._display.step("Every epoch of the group, and who led: when, why, who owned what")
        for line in proof.timeline:
            self._display.row(line)


def _start(node: NodeProcess) -> None:
    try:
        node.start()
    except LaunchError as error:
        raise launch_failure(error) from error


def _same_group(before: SeenGroup, after: SeenGroup) -> Claim:
    text = f"the group is at epoch {before.epoch} as before, with the same members and owners"
    if after.epoch != before.epoch:
        return Claim(text, f"it is at epoch {after.epoch}")
    ids_before = {name: member.member_id for name, member in before.members.items()}
    ids_after = {name: member.member_id for name, member in after.members.items()}
    if ids_before != ids_after:
        return Claim(text, f"members were {sorted(ids_before.items())}, are {sorted(ids_after.items())}")
    return Claim(text, "" if before.owners() == after.owners() else f"owners are {after.owners()}")


def _shard_name(shard: int) -> str:
    return "metadata" if shard == METADATA_SHARD else f"shard {shard}"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
