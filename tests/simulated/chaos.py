"""Every kind of fault that a cluster must survive, injected into a simulated one at times from a seed.

A fault has a beginning and, where it does not end by itself, an end some time later. Machines that are down
come back; a machine is not killed twice. Disks are lost only while all nodes are up and have everything: one
disk at a time is what three nodes can lose.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from cluster.simulator import Machine, Network, SimCluster, World
from coordinator.leadership import with_drained, with_leader
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.replica.peering import Peering
from records import METADATA_SHARD, LeadershipValue
from tests.simulated.cast import Versatile
from tests.simulated.classic import Migrant
from tests.simulated.consumers import SimulatedConsumer

DOWN_MS: Final = (200.0, 3_000.0)
CUT_MS: Final = (100.0, 3_000.0)
PAUSE_MS: Final = (100.0, 5_000.0)

REPEATED_SHARE: Final = 0.02
REPEATED_MS: Final = (1.0, 300.0)

Fault = Callable[["Chaos"], bool]
"""Injects a fault; returns False if that is impossible now."""


class Chaos:
    """Injects faults into one cluster until it is told to stop; `done` counts them by kind."""

    def __init__(
        self,
        world: World,
        network: Network,
        cluster: SimCluster,
        members: Sequence[SimulatedConsumer],
        seed: int,
    ) -> None:
        self.world = world
        self.network = network
        self.cluster = cluster
        self.members = members
        self.rng = random.Random(f"chaos {seed}")
        self.done: Counter[str] = Counter()
        self.is_over = False
        self.backups: dict[int, SimFiles] = {}
        self.violations: list[str] = []

    def start(
        self,
        period_ms: float,
        kinds: Sequence[str] = (),
        faults: Mapping[str, tuple[float, Fault]] | None = None,
    ) -> None:
        """Begin to inject one of the faults per `period_ms` on average, of these kinds, or of all."""
        self._period_ms = period_ms
        self._faults = faults or FAULTS
        self._kinds = list(kinds or self._faults)
        self._next()

    def stop(self) -> None:
        """Stop injecting, end all lasting faults, and bring every machine up."""
        self.is_over = True
        self.network.heal_all()
        for machine in self.cluster.machines.values():
            machine.disk.fail = None
            machine.disk.free = 1 << 40
            if not machine.is_up:
                machine.boot()
            machine.host.resume()

    def _next(self) -> None:
        if self.is_over:
            return
        for _ in range(10):
            kind = self.rng.choices(self._kinds, [self._faults[kind][0] for kind in self._kinds])[0]
            if self._faults[kind][1](self):
                self.done[kind] += 1
                break
        self.later(self.rng.expovariate(1 / self._period_ms), self._next)

    def later(self, delay_ms: float, fn: Callable[[], object]) -> None:
        self.world.at(self.world.now_ms + delay_ms, fn)

    def while_on(self, span_ms: tuple[float, float], fn: Callable[[], object]) -> None:
        """Call `fn`, which ends a fault, after a random time within the span."""
        self.later(self.rng.uniform(*span_ms), lambda: None if self.is_over else fn())

    # Machines

    def one_up(self) -> Machine | None:
        up = list(self.cluster.up.values())
        return self.rng.choice(up) if up else None

    def two(self) -> tuple[int, int]:
        one, other = self.rng.sample(sorted(self.cluster.machines), 2)
        return one, other

    def end(self, machine: Machine, how: Callable[[], object]) -> None:
        """End the machine's node by `how`, and start it again some time later."""
        how()
        self.while_on(DOWN_MS, lambda: None if machine.is_up else machine.boot())

    def is_whole(self) -> bool:
        """Return whether every node is up, in contact, and recovered from the loss of a disk."""
        cluster = self.cluster
        if len(cluster.up) < len(cluster.machines) or not cluster.is_settled():
            return False
        return not any(
            cluster.runtime(node_id, shard).replica.status()["is_joining"]
            for node_id in cluster.machines
            for shard in cluster.shards
        )


def kill(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is not None:
        chaos.end(machine, machine.kill)
    return machine is not None


def kill_a_leader(chaos: Chaos) -> bool:
    leader = chaos.cluster.leader_of(chaos.rng.choice(chaos.cluster.shards))
    if leader is None or leader not in chaos.cluster.up:
        return False
    machine = chaos.cluster[leader]
    chaos.end(machine, machine.kill)
    return True


def lose_power(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is not None:
        how, seed = chaos.rng.choice([Crash.LOST, Crash.TORN]), chaos.rng.randrange(1 << 30)
        chaos.end(machine, lambda: machine.lose_power(how, seed))
    return machine is not None


def lose_power_everywhere(chaos: Chaos) -> bool:
    up = list(chaos.cluster.up.values())
    for machine in up:
        how, seed = chaos.rng.choice([Crash.LOST, Crash.TORN]), chaos.rng.randrange(1 << 30)
        chaos.end(machine, lambda machine=machine, how=how, seed=seed: machine.lose_power(how, seed))  # type: ignore[misc]
    return bool(up)


def restart(chaos: Chaos) -> bool:
    """Stop a node cleanly, with hand-over, and start it again."""
    machine = chaos.one_up()
    if machine is None:
        return False
    host = machine.host

    def stopped() -> None:
        host.kill()
        delay_ms = 0.0 if chaos.is_over else chaos.rng.uniform(*DOWN_MS)
        chaos.later(delay_ms, lambda: None if machine.is_up else machine.boot())

    host.call_soon(machine.node.stop, stopped)
    return True


def pause(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is not None:
        machine.host.pause(chaos.rng.uniform(*PAUSE_MS))
    return machine is not None


def pause_everywhere(chaos: Chaos) -> bool:
    up = list(chaos.cluster.up.values())
    duration_ms = chaos.rng.uniform(*PAUSE_MS)
    for machine in up:
        machine.host.pause(duration_ms + chaos.rng.uniform(0, 20))
    return bool(up)


# The network


def cut(chaos: Chaos) -> bool:
    one, other = chaos.two()
    chaos.cluster.cut(one, other)
    chaos.while_on(CUT_MS, lambda: chaos.network.heal(f"node-{one}", f"node-{other}"))
    return True


def cut_one_way(chaos: Chaos) -> bool:
    one, other = chaos.two()
    chaos.cluster.cut_one_way(one, other)
    chaos.while_on(CUT_MS, lambda: chaos.network.heal(f"node-{one}", f"node-{other}"))
    return True


def isolate(chaos: Chaos) -> bool:
    one, _ = chaos.two()
    chaos.cluster.isolate(one)

    def heal() -> None:
        for other in chaos.cluster.others(one):
            chaos.network.heal(f"node-{one}", f"node-{other}")

    chaos.while_on(CUT_MS, heal)
    return True


def reset(chaos: Chaos) -> bool:
    return chaos.cluster.reset(*chaos.two()) > 0


def reset_one_end_first(chaos: Chaos) -> bool:
    """Reset all connections of a leader; its followers notice at once, the leader later."""
    leader = chaos.cluster.leader_of(chaos.rng.choice(chaos.cluster.shards))
    if leader is None:
        return False
    later_ms = chaos.rng.uniform(50, 400)
    return sum(chaos.cluster.reset(other, leader, later_ms) for other in chaos.cluster.others(leader)) > 0


def slow_link(chaos: Chaos) -> bool:
    one, other = chaos.two()
    chaos.network.slow_down(f"node-{one}", f"node-{other}", chaos.rng.uniform(20, 400))
    chaos.while_on(CUT_MS, lambda: chaos.network.slow_down(f"node-{one}", f"node-{other}", 0.0))
    return True


def cut_a_client(chaos: Chaos) -> bool:
    member = chaos.rng.choice(chaos.members)
    one, _ = chaos.two()
    chaos.network.cut_one_way(*chaos.rng.choice([(member.name, f"node-{one}"), (f"node-{one}", member.name)]))
    chaos.while_on(CUT_MS, lambda: chaos.network.heal(member.name, f"node-{one}"))
    return True


# Disks and clocks


def stall_a_disk(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is not None:
        machine.host.stall_disk(chaos.rng.uniform(50, 4_000))
    return machine is not None


def fill_a_disk(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is None:
        return False
    machine.disk.free = 1024
    chaos.while_on((1_000, 3_000), lambda: setattr(machine.disk, "free", 1 << 40))
    return True


def break_a_disk(chaos: Chaos) -> bool:
    """Fail a disk's next sync: the node must stop itself; the disk works again at the next start."""
    machine = chaos.one_up()
    if machine is None:
        return False

    def fail(_number: int, operation: str, _path: str) -> OSError | None:
        return OSError(errno.EIO, "injected") if operation == "fdatasync" else None

    machine.disk.fail = fail

    def mend() -> None:
        machine.disk.fail = None
        if machine.is_up:
            machine.kill()  # no sync came
        machine.boot()

    chaos.while_on(DOWN_MS, mend)
    return True


def set_a_clock(chaos: Chaos) -> bool:
    machine = chaos.one_up()
    if machine is not None:
        machine.host.wall_skew_ms = chaos.rng.choice([-3_600_000, -2_000, 0, 2_000, 86_400_000])
    return machine is not None


def replace_a_disk(chaos: Chaos) -> bool:
    if not chaos.is_whole():
        return False
    machine = chaos.cluster[chaos.two()[0]]
    chaos.backups[machine.node_id] = machine.copy_disk()
    machine.kill()
    machine.replace_disk()
    chaos.while_on((200.0, 500.0), lambda: None if machine.is_up else machine.boot())
    return True


def put_an_old_disk_back(chaos: Chaos) -> bool:
    """Restore a disk from a backup that lacks later votes and acknowledgements; peers must refuse it until it
    is replaced."""
    if not chaos.backups or not chaos.is_whole():
        return False
    node_id, disk = chaos.backups.popitem()
    machine = chaos.cluster[node_id]
    machine.kill()
    machine.put_disk(disk)
    machine.boot()

    def replace() -> None:
        if machine.is_up:
            if chaos.cluster.takes_part(node_id):
                chaos.violations.append(f"node {node_id} takes part with a disk of former times")
            machine.kill()
        machine.replace_disk()
        machine.boot()

    chaos.later(chaos.rng.uniform(1_000, 2_000), replace)
    return True


# Operators and members


def transfer(chaos: Chaos) -> bool:
    shard = chaos.rng.choice(chaos.cluster.shards)
    leader = chaos.cluster.leader_of(shard)
    if leader is None or leader not in chaos.cluster.up:
        return False
    machine, to = chaos.cluster[leader], chaos.rng.choice([None, *chaos.cluster.others(leader)])
    machine.host.call_soon(machine.node.transfer, shard, to, lambda _why: None)
    return True


def _ask(chaos: Chaos, change: Callable[[LeadershipValue], LeadershipValue]) -> bool:
    """Let the leader of the metadata shard write a changed request, as operators have it do."""
    leader = chaos.cluster.leader_of(METADATA_SHARD)
    if leader is None or leader not in chaos.cluster.up:
        return False
    machine = chaos.cluster[leader]

    def ask() -> None:
        metadata = machine.node.metadata
        metadata.duties.ask_leadership(change(metadata.machine.view.leadership), "chaos", lambda _why: None)

    machine.host.call_soon(ask)
    return True


def ask_for_a_leader(chaos: Chaos) -> bool:
    """Ask for a transfer that lasts, or undo one."""
    shard, node_id = chaos.rng.choice(chaos.cluster.shards), chaos.rng.choice([None, *chaos.cluster.machines])
    return _ask(chaos, lambda asked: with_leader(asked, shard, node_id))


def drain(chaos: Chaos) -> bool:
    """Drain a node, or undo it."""
    node_id, _ = chaos.two()
    return _ask(chaos, lambda asked: with_drained(asked, node_id, is_drained=node_id not in asked.drained))


def leave(chaos: Chaos) -> bool:
    member = chaos.rng.choice(chaos.members)
    member.host.call_soon(member.leave)
    return True


def crash_a_member(chaos: Chaos) -> bool:
    member = chaos.rng.choice(chaos.members)
    member.host.call_soon(member.crash)
    return True


def resubscribe(chaos: Chaos) -> bool:
    member = chaos.rng.choice(chaos.members)
    if isinstance(member, Versatile | Migrant):
        member.host.call_soon(member.resubscribe)
    return isinstance(member, Versatile | Migrant)


FAULTS: Final[dict[str, tuple[float, Fault]]] = {
    "kill -9": (2, kill),
    "kill -9 of a leader": (3, kill_a_leader),
    "power failure": (2, lose_power),
    "power failure everywhere": (0.5, lose_power_everywhere),
    "clean restart": (1, restart),
    "pause": (3, pause),
    "pause of all": (0.5, pause_everywhere),
    "cut": (3, cut),
    "cut one way": (3, cut_one_way),
    "isolated node": (2, isolate),
    "reset connections": (3, reset),
    "reset heard late": (2, reset_one_end_first),
    "slow link": (2, slow_link),
    "cut client": (2, cut_a_client),
    "stalled disk": (2, stall_a_disk),
    "full disk": (1, fill_a_disk),
    "failing disk": (1, break_a_disk),
    "clock set": (1, set_a_clock),
    "replaced disk": (2, replace_a_disk),
    "old disk put back": (2, put_an_old_disk_back),
    "leadership transfer": (3, transfer),
    "member leaves": (2, leave),
}
"""Faults by kind, each with its weight."""

ROLES: Final[dict[str, tuple[float, Fault]]] = FAULTS | {
    "member leaves": (12, leave),
    "member crashes": (4, crash_a_member),
    "member subscribes anew": (6, resubscribe),
}
"""The faults of runs with members of several kinds."""

CAST: Final[dict[str, tuple[float, Fault]]] = ROLES | {
    "leader asked for": (3, ask_for_a_leader),
    "node drained or not": (4, drain),
}
"""The faults of runs with members of every kind and operators (`cast`)."""


def repeat_messages(patch: pytest.MonkeyPatch) -> None:
    """Now and then deliver a peer's message a second time, later, which links never do."""
    take = Peering.message

    def message(self: Peering, peer: int, payload: bytes) -> None:
        take(self, peer, payload)
        rng = self._host.rng
        if rng.random() < REPEATED_SHARE:
            self._host.call_later(rng.uniform(*REPEATED_MS), take, self, peer, payload)

    patch.setattr(Peering, "message", message)
