"""The stage of the stories: one simulated machine, and members that do exactly what the story says.

A command is a word and its arguments; `COMMANDS` at the end lists them. Members are clients on the wire: the
epoch and partitions that they send are those that the node gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.runtime.shard_runtime import AnyShardRuntime
from cluster.simulator import ConnectionGone, Machine, Network, WireClient, World
from raftlog.env.simulated_files import Crash
from records import METADATA_SHARD, ReasonKind, RecordType, Trigger, decode_cause, iter_records, topic_id_text
from tests.scenarios.classic_stage import CLASSIC_COMMANDS, ClassicStage
from tests.scenarios.living import LIVING_COMMANDS, LivingStage
from tests.scenarios.wording import error_words, ranges
from tests.support.requests import commit_request
from tests.support.sim_node import Consumer
from tests.support.single_replica import committed
from tests.support.write_order import check_write_order
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

PROMPT = "> "


def perform(script: str, stage: Stage) -> str:
    """Run the commands of a story; return it with the output under each of them."""
    lines: list[str] = []
    seen_above = False
    for line in script.splitlines():
        if line.startswith(PROMPT):
            lines += [line, *stage.command(line.removeprefix(PROMPT))]
            seen_above = True
        elif not line or line.startswith("#"):
            lines.append(line)
            seen_above = False
        elif not seen_above:
            raise ValueError(f"neither a command nor a comment: {line!r}")
    return "\n".join(lines) + "\n"


class PowerFailure(BaseException):
    """The machine lost power in the middle of a call to its disk."""


class Stage(ClassicStage, LivingStage):
    """One performance."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(848)
        self.network = Network(self.world)
        self.settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
        self.host_options: dict[str, Any] = {}
        self._machine: Machine | None = None
        self._failure: Crash | None = None
        self.members: dict[str, Any] = {}
        self.topic_names: dict[bytes, str] = {}
        self.num_partitions: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.told: dict[int, int] = {}

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self._machine = Machine(
                self.world, self.network, num_shards=2, settings=self.settings, host_options=self.host_options
            )
            self._machine.boot_until_ready()
            self.admin = WireClient(self.world, self.network, "admin")
        return self._machine

    def command(self, text: str) -> list[str]:
        """Perform one command; return its output."""
        name, *words = text.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        arguments = [word for word in words if "=" not in word]
        try:
            return self.commands[name](self, *arguments, **options)
        except ConnectionGone:
            return ["no answer, the connection is gone"]
        except PowerFailure:
            assert self._failure is not None
            self.machine.on_disk_call = None
            self.machine.crash(self._failure, seed=1)
            return ["no answer, the power failed"]

    @property
    def commands(self) -> dict[str, Callable[..., list[str]]]:
        return COMMANDS

    def member(self, name: str) -> Any:
        return self.members[name]

    def new_client(self, name: str, group: str) -> WireClient:
        assert self.machine
        return WireClient(self.world, self.network, name)

    def runtime_of(self, shard: int | str) -> AnyShardRuntime:
        node = self.machine.node
        if isinstance(shard, str):
            return node.shard_for(shard)
        return node.metadata if shard == METADATA_SHARD else node.shards[shard]

    # The machine

    def given(self, **settings: str) -> list[str]:
        assert self._machine is None, "settings come first"
        for name, value in settings.items():
            if name in ("sync_ms", "clock_step_ms"):
                self.host_options[name] = float(value)
            elif name == "protocols":
                self.settings["group_coordinator_rebalance_protocols"] = tuple(value.split(","))
            else:
                self.settings[name] = int(value)
        return []

    def wait(self, duration_ms: str) -> list[str]:
        self.world.run_for(float(duration_ms))
        return []

    def pause(self, duration_ms: str) -> list[str]:
        self.machine.host.pause(float(duration_ms))
        return []

    def kill(self) -> list[str]:
        self.machine.kill()
        self.world.run_for(1)
        return []

    def fail_power(self, when: str, operation: str, what: str) -> list[str]:
        """Let power fail before or after the next such call; unsynced bytes are kept, lost or torn."""
        self._failure = Crash(what)

        def on_call(_number: int, called: str, _path: str, is_done: bool) -> None:
            if called == operation and is_done == (when == "after"):
                raise PowerFailure

        self.machine.on_disk_call = on_call
        return []

    def restart(self) -> list[str]:
        self.machine.boot_until_ready()
        return ["every shard is ready"]

    def boot(self) -> list[str]:
        """Start the node without waiting: the listener is up while the log is read."""
        self.machine.boot()
        self.world.run_until(lambda: bool(self.network.listeners), within_ms=1_000)
        return [f"{shard.name} is {shard.state.value}" for shard in self.machine.node.shards]

    def stop(self) -> list[str]:
        self.machine.stop()
        self.world.run_for(1)
        return ["stopped"]

    # Topics

    def create(self, topic: str, num_partitions: str) -> list[str]:
        wanted = CreatableTopic(name=topic, num_partitions=int(num_partitions), replication_factor=1)
        answer = self.ask_admin(
            ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
        )
        created = answer.topics[0]
        if created.error_code:
            return [f"{topic}: {error_words(created.error_code)}"]
        self.topic_names[created.topic_id] = topic
        self.num_partitions[topic] = created.num_partitions
        return [f"{topic} has {created.num_partitions} partitions"]

    def grow(self, topic: str, num_partitions: str) -> list[str]:
        wanted = CreatePartitionsTopic(name=topic, count=int(num_partitions), assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000)
        grown = self.ask_admin(ApiKey.CREATE_PARTITIONS, 3, request).results[0]
        if not grown.error_code:
            self.num_partitions[topic] = int(num_partitions)
        return [
            f"{topic}: {error_words(grown.error_code)}"
            if grown.error_code
            else f"{topic} has {num_partitions} partitions"
        ]

    def delete(self, topic: str) -> list[str]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
        deleted = self.ask_admin(ApiKey.DELETE_TOPICS, 6, request).responses[0]
        return [
            f"{topic}: {error_words(deleted.error_code)}" if deleted.error_code else f"{topic} is deleted"
        ]

    def ask_admin(self, api_key: ApiKey, version: int, body: Any) -> Any:
        assert self.machine
        return self.admin.ask(api_key, version, body)

    # Members

    def join(self, name: str, group: str, *topics: str, instance: str | None = None) -> list[str]:
        self.members[name] = Consumer(self.new_client(name, group), group, name, *topics)
        self.members[name].instance_id = instance
        return self.heartbeat(name)

    def heartbeat(self, name: str, **options: str) -> list[str]:
        """Send a heartbeat with the partitions that the member owns; `epoch` and `owned=none` falsify it."""
        member = self.member(name)
        if "epoch" in options:
            member.epoch = int(options["epoch"])
        if options.get("owned") == "none":
            member.owned = []
        answer = member.heartbeat()
        if answer.error_code:
            return [f"{name}: {error_words(answer.error_code)}"]
        told = f"{name}: epoch {answer.member_epoch}"
        if answer.assignment is None:
            return [f"{told}, nothing new"]
        return [f"{told}, assigned {self._topics(answer.assignment.topic_partitions)}"]

    def lose_join(self, name: str, group: str, *topics: str, instance: str | None = None) -> list[str]:
        """Send a join whose answer is lost."""
        self.members[name] = Consumer(WireClient(self.world, self.network, name), group, name, *topics)
        self.members[name].instance_id = instance
        return self.lose(name)

    def lose(self, name: str) -> list[str]:
        """Send a heartbeat whose answer is lost."""
        member = self.member(name)
        request = member.next_heartbeat()
        before = self.machine.node.shard_for(member.group_id).commit_index
        member.client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        self.world.run_until(
            lambda: self.machine.node.shard_for(member.group_id).commit_index > before, within_ms=100
        )
        member.client.cut()
        self.world.run_for(10)
        return [f"{name}: the node answered, the connection is gone"]

    def leave(self, name: str) -> list[str]:
        answer = self.member(name).leave()
        return [f"{name}: {error_words(answer.error_code)}" if answer.error_code else f"{name}: left"]

    def away(self, name: str) -> list[str]:
        """Stop a static member that means to return."""
        answer = self.member(name).leave(for_good=False)
        return [f"{name}: {error_words(answer.error_code)}" if answer.error_code else f"{name}: away"]

    def vanish(self, name: str) -> list[str]:
        self.member(name).client.vanish()
        return []

    def commit(self, name: str, *offsets: str, **options: str) -> list[str]:
        """Commit `partition:offset ...` of the first topic; `epoch` replaces the member's own."""
        member = self.member(name)
        wanted = {int(p): int(o) for p, _, o in (word.partition(":") for word in offsets)}
        epoch = int(options.get("epoch", member.epoch))
        request = commit_request(
            member.group_id, wanted, topic=member.topics[0], member_id=member.member_id, epoch=epoch
        )
        for _ in range(int(options.get("times", 1))):
            answer = member.client.ask(ApiKey.OFFSET_COMMIT, 9, request)
        parts = [part for topic in answer.topics for part in topic.partitions]
        return [
            f"{name}: "
            + ", ".join(f"{part.partition_index} {error_words(part.error_code)}" for part in parts)
        ]

    def fetch(self, group: str) -> list[str]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answered = self.ask_admin(ApiKey.OFFSET_FETCH, 9, request).groups[0]
        if answered.error_code:
            return [f"{group}: {error_words(answered.error_code)}"]
        return [
            f"{topic.name}: "
            + ", ".join(f"{part.partition_index}:{part.committed_offset}" for part in topic.partitions)
            for topic in answered.topics
        ] or ["nothing committed"]

    # Views

    def describe(self, group: str) -> list[str]:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        found = self.ask_admin(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups[0]
        if found.error_code:
            return [f"{group}: {error_words(found.error_code)}"]
        epochs = f"epoch {found.group_epoch}, assignment epoch {found.assignment_epoch}"
        lines = [f"{group}: {found.group_state}, {epochs}"]
        for member in found.members:
            has = self._topics(member.assignment.topic_partitions)
            wants = self._topics(member.target_assignment.topic_partitions)
            who = f"{member.member_id} ({member.instance_id})" if member.instance_id else member.member_id
            lines.append(f"  {who}: epoch {member.member_epoch}, has {has}, target {wants}")
        return lines

    def log(self, group: str) -> list[str]:
        """Return the entries that the group's shard wrote since the last `log`: cause and record types."""
        return self.tell(self.machine.node.shard_for(group))

    def tell(self, runtime: AnyShardRuntime) -> list[str]:
        """Return the entries that a shard wrote since the last call."""
        lines = []
        for frame in committed(runtime.replica, self.told.get(runtime.shard, 0) + 1):
            self.told[runtime.shard] = frame.index
            body = bytes(frame.body)
            cause = decode_cause(body)
            check_write_order(cause.trigger, iter_records(body))
            words = [_words(Trigger(cause.trigger).name), cause.member_id]
            words += [f"(was {cause.detail})"] if cause.detail else []
            words += [f"({e.member_id} silent for {e.timeout_ms} ms)" for e in cause.expiries]
            reasons = [
                " ".join(filter(None, (_words(ReasonKind(r.kind).name), r.member_id, r.topic)))
                for r in cause.reasons
            ]
            because = f", new epoch because {', '.join(reasons)}" if reasons else ""
            records = ", ".join(_record(raw.type, raw.value is None) for raw in iter_records(body))
            lines.append(self.named(f"{frame.index} {' '.join(filter(None, words))}{because}"))
            lines.append(f"    {records}")
        return lines

    def _topics(self, topic_partitions: Any) -> str:
        parts = sorted(
            (self.topic_names.get(given.topic_id, topic_id_text(given.topic_id)), ranges(given.partitions))
            for given in topic_partitions
        )
        return " and ".join(f"{name} {ranges}" for name, ranges in parts) or "nothing"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _record(type_: int, is_tombstone: bool) -> str:
    return ("~" if is_tombstone else "") + _words(RecordType(type_).name).removeprefix("consumer group ")


COMMANDS: dict[str, Callable[..., list[str]]] = {
    "given": Stage.given,
    "wait": Stage.wait,
    "pause": Stage.pause,
    "kill": Stage.kill,
    "power-fails": Stage.fail_power,
    "restart": Stage.restart,
    "boot": Stage.boot,
    "stop": Stage.stop,
    "create": Stage.create,
    "grow": Stage.grow,
    "delete": Stage.delete,
    "join": Stage.join,
    "heartbeat": Stage.heartbeat,
    "lose": Stage.lose,
    "lose-join": Stage.lose_join,
    "leave": Stage.leave,
    "away": Stage.away,
    "vanish": Stage.vanish,
    "commit": Stage.commit,
    "fetch": Stage.fetch,
    "describe": Stage.describe,
    "log": Stage.log,
    **CLASSIC_COMMANDS,
    **LIVING_COMMANDS,
}
