"""One seeded run of a whole cluster under chaos, and all its invariants.

Three real nodes with all their shards, twenty members in five groups, tools that commit, readers that read,
for `duration_ms` of virtual time. Then the faults end, the cluster must settle within `SETTLE_MS`, and the
clients' records are compared with the logs of all nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from cluster.settings import Settings
from cluster.simulator import Network, SimCluster, WireClient, World
from cluster.simulator.machine import KAFKA_PORT, address_of
from coordinator.groupconfigs import HEARTBEAT_INTERVAL
from history.checking.invariants import InvariantChecker
from raftlog.replica.replica import Replica
from raftlog.storage.frames import frames_in
from records import (
    LATEST_FORMAT_LEVEL,
    RecordType,
    TermStartKey,
    TermStartValue,
    decode_cause,
    decode_key_and_value,
    iter_records,
)
from tests.report import count_fault
from tests.simulated.actors import Actor, Reader, Tool
from tests.simulated.cast import Operator, Versatile, kind_of
from tests.simulated.chaos import CAST, FAULTS, ROLES, Chaos
from tests.simulated.chronicle import Chronicle, Key
from tests.simulated.classic import Generations
from tests.simulated.consumers import SimulatedConsumer
from tests.support.sim_node import GROUPS
from wire.apis import ApiKey
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

NUM_NODES: Final = 3
NUM_SHARDS: Final = 4
NUM_MEMBERS: Final = 20
NUM_TOOLS: Final = 3
TOPICS: Final = {"orders": 12, "events": 5}
SESSION_MS: Final = 4_000
SETTLE_MS: Final = 8_000.0
"""Time for a restart, two elections and the hand-over to the preferred nodes; lasting faults end at once."""

QUIET_MS: Final = 3_000.0
"""Time after settling in which every client finds its coordinator and every reader reads."""

LEVEL_MS: Final = 500.0
"""Time for followers to learn the last commit index, as members may still expire at the end."""

LOOK_MS: Final = 10.0
"""Milliseconds between two checks of who leads; a term lasts longer than this."""

MACHINE: Final[dict[str, Any]] = {
    "num_shards": NUM_SHARDS,
    "settings": {
        "group_consumer_session_timeout_ms": SESSION_MS,
        "group_consumer_min_session_timeout_ms": 1_000,
        "group_consumer_heartbeat_interval_ms": 500,
        "group_consumer_min_heartbeat_interval_ms": 500,
        "log_segment_bytes": 32 * 1024,
        "snapshot_tail_records": 2_000,
        "leader_balance_delay_ms": 2_000,
    },
}

KindsOf = Callable[[int, int], tuple[type[SimulatedConsumer], dict[str, Any]]]
"""The class of a member and its arguments, by the numbers of its group and of the member in it."""


@dataclass
class Outcome:
    """The outcome of a run: `violations` are sentences, and there must be none."""

    seed: int
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    triggers: Counter[int] = field(default_factory=Counter)
    """Counts of the triggers of entries in the logs of groups."""
    reasons: Counter[int] = field(default_factory=Counter)
    """Counts of the reasons for which epochs began."""
    num_acknowledged: int = 0
    num_reads: int = 0
    num_terms: int = 0
    settled_ms: float = 0.0
    trace_hash: int = 0
    events_run: int = 0

    def say(self) -> str:
        """Return one line for reports."""
        return (
            f"seed {self.seed}: {self.faults.total()} faults, {self.num_acknowledged} commits acknowledged, "
            f"{self.num_reads} reads, {self.num_terms} terms, settled in {self.settled_ms:.0f} ms, "
            f"{self.events_run} events, trace {self.trace_hash:08x}"
        )


class Run:
    """One run; `play` returns its outcome. With `has_cast` there are members of every kind and operators,
    else all members are `plain`, or as `kinds_of` says by the numbers of group and member. `limits` are those
    of the coordinators, and `machine` adds to MACHINE."""

    def __init__(
        self,
        seed: int,
        *,
        duration_ms: float = 60_000.0,
        period_ms: float = 700.0,
        kinds: Sequence[str] = (),
        has_cast: bool = False,
        plain: type[SimulatedConsumer] = SimulatedConsumer,
        kinds_of: KindsOf | None = None,
        limits: dict[str, int] | None = None,
        **machine: Any,
    ) -> None:
        self.duration_ms = duration_ms
        self.period_ms = period_ms
        self.kinds = kinds
        self.has_cast = has_cast
        self.kinds_of = kinds_of or (kind_of if has_cast else lambda *_: (plain, {}))
        self.faults = CAST if has_cast else FAULTS if kinds_of is None else ROLES
        self.limits = limits or {}
        self.world = World(seed)
        self.network = Network(self.world)
        if has_cast:  # some of its members need the newest format
            machine["starting_level"] = LATEST_FORMAT_LEVEL
        self.cluster = SimCluster(self.world, self.network, num_nodes=NUM_NODES, **(MACHINE | machine))
        self.chronicle = Chronicle()
        self.outcome = Outcome(seed)
        self._leaders: dict[tuple[int, int], int] = {}
        self._fatal: set[str] = set()
        self._configs: set[tuple[str, str, str | None]] = set()

    def play(self) -> Outcome:
        """Play the run to its end."""
        with pytest.MonkeyPatch.context() as patch:
            usual = Settings.limits
            patch.setattr(Settings, "limits", lambda settings: replace(usual(settings), **self.limits))
            return self._play()

    def _play(self) -> Outcome:
        self.cluster.boot_until_ready()
        topic_ids = self._create_topics()
        self.members, others = self._actors(topic_ids)
        self._look()
        self.world.run_for(2_000)
        self._disturb()
        self._settle()
        for actor in others:
            if isinstance(actor, Operator):
                actor.finish()
        self.world.run_for(QUIET_MS)
        self._check_drained()
        for actor in (*self.members, *others):
            actor.stop()
        self.world.run_for(2_500)
        self.world.run_until(self._is_level, within_ms=LEVEL_MS)
        for member in self.members:
            member.ownership.finish()
        self._check()
        return self.outcome

    def _disturb(self) -> None:
        """Inject all faults of the run, to the end of the last one."""
        chaos = Chaos(self.world, self.network, self.cluster, self.members, self.outcome.seed)
        chaos.start(self.period_ms, self.kinds, self.faults)
        self.world.run_for(self.duration_ms)
        chaos.stop()
        self.outcome.faults = chaos.done
        self.outcome.violations += chaos.violations

    def _create_topics(self) -> dict[str, bytes]:
        found = {}
        for name, num_partitions in TOPICS.items():
            leader = self.cluster.wait_for_leader(-1)
            admin = WireClient(self.world, self.network, f"admin-{name}", address=address_of(leader))
            topic = CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            created = admin.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0]
            assert created.error_code == 0, created
            found[name] = created.topic_id
            admin.close()
        return found

    def _actors(self, topic_ids: dict[str, bytes]) -> tuple[list[SimulatedConsumer], list[Actor]]:
        bootstrap = [(address_of(node_id), KAFKA_PORT) for node_id in self.cluster.machines]

        def make(kind: type[Actor], name: str, group_id: str, **how: Any) -> Any:
            return kind(self.world, self.network, self.chronicle, name, group_id, bootstrap, **how)

        members: list[SimulatedConsumer] = []
        for number in range(NUM_MEMBERS):
            group_number = number % len(GROUPS)
            kind, how = self.kinds_of(group_number, number // len(GROUPS))
            member = make(kind, f"member-{number}", GROUPS[group_number], **how)
            member.start(topic_ids, SESSION_MS)
            members.append(member)
        others: list[Actor] = []
        for group_id in GROUPS if self.has_cast else ():
            operator = make(Operator, f"operator-{group_id}", group_id)
            operator.start([member for member in members if member.group_id == group_id])
            others.append(operator)
        for number in range(NUM_TOOLS):
            tool = make(Tool, f"tool-{number}", f"tool-group-{number}")
            tool.start("orders", TOPICS["orders"])
            others.append(tool)
        for group_id in [*GROUPS, *(f"tool-group-{number}" for number in range(NUM_TOOLS))]:
            reader = make(Reader, f"reader-{group_id}", group_id)
            reader.start()
            others.append(reader)
        return members, others

    # Observation

    def _look(self) -> None:
        """Check that each shard has one leader per term, and that no leader of an older term has a lease."""
        replicas: defaultdict[int, list[tuple[int, Replica]]] = defaultdict(list)
        for node_id, machine in self.cluster.machines.items():
            if not machine.is_up:
                if machine.host.fatal_message:
                    self._fatal.add(machine.host.fatal_message)
            elif machine.node.shards:
                for shard in self.cluster.shards:
                    replica = self.cluster.runtime(node_id, shard).replica
                    if replica.is_leader:
                        replicas[shard].append((node_id, replica))
        for shard, leading in replicas.items():
            self._look_at(shard, leading)
        self.world.at(self.world.now_ms + LOOK_MS, self._look)

    def _look_at(self, shard: int, leading: list[tuple[int, Replica]]) -> None:
        newest = max(replica.term for _, replica in leading)
        for node_id, replica in leading:
            first = self._leaders.setdefault((shard, replica.term), node_id)
            if first != node_id:
                what = f"nodes {first} and {node_id} both lead shard {shard} in term {replica.term}"
                self.outcome.violations.append(what)
            if replica.term < newest and replica.leadership.has_lease(self.world.now_ms):
                what = f"node {node_id} has a lease on shard {shard} in term {replica.term}, not {newest}"
                self.outcome.violations.append(what)

    # The end

    def _settle(self) -> None:
        try:
            self.outcome.settled_ms = self.cluster.wait_for(
                lambda: len(self.cluster.up) == NUM_NODES and self.cluster.is_settled(), SETTLE_MS
            )
        except TimeoutError as error:
            self.outcome.violations.append(str(error))

    def _check_drained(self) -> None:
        """Check that a drained node leads nothing while another one can."""
        drained = self.cluster[1].node.catalog.leadership.drained
        if len(drained) < NUM_NODES:
            self.outcome.violations += [
                f"node {node_id} is drained and leads shard {shard}"
                for shard in self.cluster.shards
                if (node_id := self.cluster.leader_of(shard)) in drained
            ]

    def _is_level(self) -> bool:
        """Return whether all nodes have applied all entries."""
        for shard in self.cluster.shards:
            replicas = [self.cluster.runtime(node_id, shard).replica for node_id in self.cluster.machines]
            if len({index for one in replicas for index in (one.last_index, one.log.chain_index)}) > 1:
                return False
        return True

    def _check(self) -> None:
        outcome, chronicle = self.outcome, self.chronicle
        outcome.num_acknowledged = len(chronicle.acknowledged)
        outcome.num_reads = len(chronicle.reads)
        outcome.trace_hash, outcome.events_run = self.world.trace_hash, self.world.events_run
        outcome.violations += [
            f"a node stopped itself: {why}" for why in self._fatal if "injected" not in why
        ]
        committed: set[tuple[Key, int]] = set()
        for shard in self.cluster.shards:
            committed |= self._check_shard(shard)
        outcome.violations += chronicle.lost(committed)
        outcome.violations += chronicle.lost_configs(self._configs)
        outcome.violations += self._wrong_intervals()
        outcome.violations += [
            f"{who} heard error {code}, {times} times" for (who, code), times in chronicle.unexpected.items()
        ]
        outcome.violations += chronicle.old_reads()
        outcome.violations += chronicle.double_owners()

    def _wrong_intervals(self) -> list[str]:
        """Return members whose interval is not the one that their group was configured to some time ago."""
        node = self.cluster[1].node
        configs = node.catalog.configs
        return [
            f"{member.member_id} of {member.group_id} heard {member.interval_ms} ms, not {due_ms}"
            for member in self.members
            if isinstance(member, Versatile) and HEARTBEAT_INTERVAL in configs.of(member.group_id)
            if member.interval_ms  # 0: it has not joined yet
            and member.interval_ms
            != (due_ms := node.group_settings.for_group(member.group_id).heartbeat_interval_ms)
        ]

    def _check_shard(self, shard: int) -> set[tuple[Key, int]]:
        """Check that a shard's logs are valid and equal on all nodes; return the commits in them."""
        logs = {node_id: self._frames(node_id, shard) for node_id in self.cluster.machines}
        longest = max(logs.values(), key=len)
        ends: set[tuple[int, str]] = set()
        for node_id, log in logs.items():
            runtime = self.cluster.runtime(node_id, shard)
            for index, frame in log.items():
                if longest.get(index, frame) != frame:
                    self.outcome.violations.append(f"shard {shard} entry {index} differs on node {node_id}")
                    break
            if max(log, default=0) != max(longest):
                what = f"shard {shard} ends at {max(log, default=0)} on node {node_id}, not at {max(longest)}"
                self.outcome.violations.append(what)
            ends.add((runtime.replica.log.chain_index, runtime.replica.log.chain_hash.hex()))
            if runtime.machine.state_hash != self.cluster.runtime(1, shard).machine.state_hash:
                self.outcome.violations.append(f"shard {shard} has another state on node {node_id}")
        if len(ends) > 1:
            self.outcome.violations.append(f"shard {shard} has several hash chains: {sorted(ends)}")
        return self._check_log(shard, longest)

    def _frames(self, node_id: int, shard: int) -> dict[int, tuple[int, bytes]]:
        replica = self.cluster.runtime(node_id, shard).replica
        found: dict[int, tuple[int, bytes]] = {}
        index = 1
        while index <= replica.commit_index:
            try:
                frames = frames_in(replica.log.read(index, 1 << 20))
            except KeyError:  # below what was installed on a new disk
                index += 1
                continue
            for frame in frames:
                found[frame.index] = (frame.term, bytes(frame.body))
                index = frame.index + 1
            if not frames:
                break
        return found

    def _check_log(self, shard: int, log: dict[int, tuple[int, bytes]]) -> set[tuple[Key, int]]:
        committed: set[tuple[Key, int]] = set()
        checker, generations = InvariantChecker(), Generations()
        opened: dict[int, int] = {}
        for index, (term, body) in sorted(log.items()):
            raws = iter_records(body)
            checker.entry(index, raws)
            cause = decode_cause(body)
            self.outcome.triggers[cause.trigger] += 1
            self.outcome.reasons.update(reason.kind for reason in cause.reasons)
            self.outcome.violations += [
                f"shard {shard} entry {index}: {what}" for what in generations.entry(cause, raws)
            ]
            for raw in raws:
                if raw.type == RecordType.OFFSET_COMMIT and raw.value is not None:
                    key, value = decode_key_and_value(raw)
                    committed.add(((key.group_id, key.topic, key.partition), value.offset))
                elif raw.type == RecordType.GROUP_CONFIG and raw.value is not None:
                    key, value = decode_key_and_value(raw)
                    self._configs.add((key.group_id, key.name, value.value))
                elif raw.type == RecordType.TERM_START:
                    key, value = decode_key_and_value(raw)
                    assert isinstance(key, TermStartKey)
                    assert isinstance(value, TermStartValue)
                    if opened.setdefault(term, value.node_id) != value.node_id:
                        self.outcome.violations.append(f"shard {shard}: two nodes opened term {term}")
        self.outcome.num_terms += len(opened)
        self.outcome.violations += [
            f"shard {shard} entry {found.index}: {found.rule}: {found.found}" for found in checker.violations
        ]
        return committed


def outcome_of(run: Run, acknowledged_min: int) -> Outcome:
    """Play a run, in which every invariant must hold and so many commits succeed; report its faults."""
    outcome = run.play()
    for kind, count in outcome.faults.items():
        count_fault("simulated", kind, count)
    print(outcome.say())
    assert outcome.violations == [], outcome.say()
    assert outcome.num_acknowledged >= acknowledged_min
    return outcome
