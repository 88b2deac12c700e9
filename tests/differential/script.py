"""Scripts: the steps of one group's clients, as short lines that can be read, kept and shortened.

A line is `VERB WHO name=value …`. WHO is a member of the script (`a` to `f`), or `-` for a client
that is no member.

    join a topics=t6,t4 assignor=range    join with epoch 0; version=0, instance=i1, regex=t1|t3
    beat a owned=told epoch=same          heartbeat; owned: told (acknowledge), kept (not yet), null, none;
                                          all fields after a lost reply, as clients do, unless terse=1
    resubscribe a topics=t4 regex=t1|t3   heartbeat that changes the subscription
    assignor a name=uniform               heartbeat that changes the assignor's vote
    full a                                heartbeat with all fields
    leave a epoch=-1                      leave; -2 for a static member that leaves temporarily
    ghost a epoch=same                    heartbeat or leave of a's replaced process
    commit a topic=t6 partition=2 epoch=same offset=7    epoch: same, before, above, none
    fetch a topic=t6 epoch=same           OffsetFetch; `fetch -` without a member; without topic: all
    forget - topic=t6 partition=2         OffsetDelete
    describe, list, delete, classic       ConsumerGroupDescribe, ListGroups, DeleteGroups, DescribeGroups
    create, grow, drop - topic=own1 partitions=5     topics of this script alone
    config - heartbeat=1500 session=9000  IncrementalAlterConfigs of the group; configs - asks for them
    cjoin a protocols=range:x,roundrobin:@t1|t3   JoinGroup; metadata: bytes, or @ and the topics of a
                                          subscription, or & if that says what the member owns; version,
                                          instance, session, rebalance, type, id=b
    csync a assign=p                      SyncGroup; the leader assigns to each member; range: real
                                          partitions; protocol, type
    cbeat a generation=same               Heartbeat; generation: same, before, above, none; id, instance
    cleave a                              LeaveGroup; members=a,b@i-b,@i-c for several
    ccommit a topic=t3 offset=7           OffsetCommit with the generation
    tinit a, tadd a, tend a result=abort  InitProducerId, AddOffsetsToTxn, EndTxn; epoch=before, above
    tcommit a partition=0 offset=7        TxnOffsetCommit; member=c of the classic member c
    tfetch - stable=1                     OffsetFetch with require_stable
    expire -                              wait until a session or another timer has changed the group
    settle -                              all members heartbeat until nothing changes; then judge both

A + in a value is a space. Any step may have lost=1 (the reply is lost, and the connection with it) or
tagged=1 (the request has a field that no release knows). A classic member whose request waits sends no
other of the kind, unless the step has again=1.

Shared topics are `t<number of partitions>`; names with `own` belong to the script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SETTLE: Final = "settle"
MEMBERS: Final = "abcde"
"""The settings of both sides allow five members, so that a sixth (`f`) is refused."""

RANGE_TOPICS: Final = ("t1", "t3", "t4", "t7", "t12")
UNIFORM_TOPIC: Final = "t60"
"""Divisible by every number of members up to six, so that sizes are known, whatever the tie-breaks."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a script."""

    verb: str
    who: str = "-"
    args: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        args = (f"{name}={value.replace(' ', '+')}" for name, value in self.args.items())
        return " ".join([self.verb, self.who, *args])

    def get(self, name: str, default: str = "") -> str:
        return self.args.get(name, default)


@dataclass(frozen=True, slots=True)
class Script:
    """Steps and their origin: `name` is that of a seed or a regression."""

    name: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join([f"# {self.name}", *map(str, self.steps)])

    @property
    def has_settling(self) -> bool:
        """Uniform, where group sizes depend on ties: only settled groups can be judged."""
        return any(step.verb == SETTLE for step in self.steps)

    @property
    def is_transactional(self) -> bool:
        return any(step.verb == "tinit" for step in self.steps)

    @property
    def is_mixed(self) -> bool:
        """Members of both protocols: a generation may be an epoch, which each side numbers in its own way."""
        return {"join", "cjoin"} <= {step.verb for step in self.steps}

    @property
    def is_exact(self) -> bool:
        """Range assigns by order alone, so both sides must agree on partitions; uniform only on sizes."""
        return not any(UNIFORM_TOPIC in step.get("topics") for step in self.steps)


def parse(text: str, name: str) -> Script:
    """Parse a script from its lines; empty lines and those that begin with # are ignored."""
    steps = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        verb, who, *pairs = line.split()
        args = (pair.replace("+", " ").split("=", 1) for pair in pairs)
        steps.append(Step(verb, who, dict(args)))
    return Script(name, tuple(steps))
