"""The longest turn of a node's loop under the largest requests: `python -m benchmarks.turns_bench [WORD]`.

One node on asyncio's own loop, whose every callback is timed in CPU time of its thread, so that neither the
client, a thread of the same process, nor other work on the machine counts. Each case is set up over the wire,
then requested a few times; printed is the longest single callback meanwhile. With WORD only the cases with
that word in their name run. Exits with 1 if any exceeds the 50 ms allowed for a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import classic, full_frames, load
from benchmarks.classic import ClassicMember
from benchmarks.producers import Producer
from cluster import main as node_main
from cluster.collector import look_at_the_young
from cluster.settings import load_settings
from raftlog.env.files import OsFiles
from raftlog.storage.directory import NodeIdentity, format_node
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.list_config_resources import ListConfigResourcesRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.protocol import decode_response, encode_request

ALLOWED_MS: Final = 50.0
REPEATS: Final = 5
QUIET_S: Final = 0.3
"""Seconds after the last answer: follow-up work is part of a request's cost."""
READY_S: Final = 3.0
"""Seconds until HTTP answers, which is loaded last."""
SETTLE_S: Final = 3.0
PIPELINED: Final = 200
GROUP_CONFIG, TOPIC_CONFIG = 32, 2
MIGRATING_TOPICS: Final = 5
PRODUCERS: Final = 60


class Meter:
    """The longest callback of the loop since `reset`, in ms of CPU, and what ran in it."""

    def __init__(self) -> None:
        self._collecting = 0.0
        self.reset()

    def reset(self) -> None:
        self.longest_ms, self.what, self.collecting_ms = 0.0, "", 0.0

    def collected(self, phase: str, about: dict[str, Any]) -> None:
        """Time garbage collections, which are part of the turn they occur in."""
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self.collecting_ms = max(self.collecting_ms, (time.thread_time() - self._collecting) * 1e3)

    def watch(self) -> None:
        """Time every callback of asyncio's loops from now on."""
        gc.callbacks.append(self.collected)
        plain = asyncio.events.Handle._run
        meter, clock = self, time.thread_time

        def timed(handle: Any) -> None:
            begun = clock()
            plain(handle)
            took_ms = (clock() - begun) * 1e3
            if took_ms > meter.longest_ms:
                meter.longest_ms, meter.what = took_ms, repr(handle)[:200]

        asyncio.events.Handle._run = timed  # type: ignore[method-assign]


def topics_of(count: int, prefix: str) -> list[str]:
    return [f"{prefix}-{number:05}" for number in range(count)]


class Scenario:
    """All cases, over one node."""

    def __init__(self, meter: Meter, address: tuple[str, int], url: str, word: str, sizes: int) -> None:
        self.meter = meter
        self.address = address
        self.peer = load.Peer(address)
        self.peer.socket.settimeout(600)
        self.url = url
        self.word = word
        self.sizes = sizes  # divides every size
        self.worst_ms = 0.0

    def run(self) -> None:
        for name, case in (
            ("metadata", self.metadata),
            ("offsets", self.offsets),
            ("topics", self.subscription),
            ("members", self.members),
            ("groups", self.groups),
            ("classic", self.classic),
            ("migration", self.migration),
            ("transactions", self.transactions),
            ("frames", self.full_frames),
        ):
            if self.word in name:
                case()

    def measure(self, what: str, ask: Callable[[], object], repeats: int = REPEATS) -> None:
        time.sleep(QUIET_S)
        self.meter.reset()
        waits = []
        for _ in range(repeats):
            begun = time.perf_counter()
            ask()
            waits.append((time.perf_counter() - begun) * 1e3)
        time.sleep(QUIET_S)
        self.worst_ms = max(self.worst_ms, self.meter.longest_ms)
        where = f"   in {self.meter.what}" if self.meter.longest_ms > ALLOWED_MS else ""
        wait_ms = sorted(waits)[len(waits) // 2]
        print(
            f"{what:<72} {self.meter.longest_ms:7.1f} ms   answer {wait_ms:7.0f} ms"
            f"   gc {self.meter.collecting_ms:5.1f} ms{where}",
            flush=True,
        )

    def ask(self, api: ApiKey, version: int, body: Any) -> Any:
        return self.peer.ask(api, version, body)

    def send(self, api: ApiKey, version: int, body: Any) -> None:
        """Send a request without decoding its answer, which would compete with the loop."""
        self.peer.exchange(encode_request(api, version, 0, load.CLIENT_ID, body))

    def create(self, names: list[str], partitions: int) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1) for name in names
        ]
        self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=10_000))

    def delete(self, names: list[str]) -> None:
        topics = [DeleteTopicState(name=name) for name in names]
        self.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(topics=topics, timeout_ms=10_000))

    def grow(self, name: str, count: Iterator[int]) -> None:
        topic = CreatePartitionsTopic(name=name, count=next(count), assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        answer = self.ask(ApiKey.CREATE_PARTITIONS, 3, request)
        assert not answer.results[0].error_code, answer

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=600) as answer:
            data: bytes = answer.read()
        return data

    def pipelined(self, frames: Iterator[bytes]) -> None:
        """Send many requests, some at a time, and discard their answers."""
        batch: list[bytes] = []
        for frame in frames:
            batch.append(frame)
            if len(batch) == PIPELINED:
                self._flush(batch)
        self._flush(batch)

    def _flush(self, batch: list[bytes]) -> None:
        self.peer.socket.sendall(b"".join(batch))
        for _ in batch:
            self.peer.skip(int.from_bytes(self.peer.exactly(4), "big"))
        batch.clear()

    def join(self, group_id: str, member_id: str, topics: list[str]) -> bytes:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=topics,
            topic_partitions=[],
        )
        return encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 0, load.CLIENT_ID, request)

    # The cases

    def metadata(self) -> None:
        wide, many = topics_of(10, "wide"), topics_of(1_000, "many")
        for names, each in ((wide, 10_000 // self.sizes), (many, 100 // self.sizes)):
            self.create(names, each)
            what = f"Metadata, {len(names)} topics of {each} partitions"
            self.measure(what, partial(self.send, ApiKey.METADATA, 12, MetadataRequest(topics=None)))
            self.delete(names)

    def offsets(self) -> None:
        each = 10_000 // self.sizes
        names = topics_of(10, "offsets")
        self.create(names, each)
        one = load.commit_frame("offsets", names[0], each)
        self.measure(f"OffsetCommit of {each} partitions", partial(self.peer.exchange, one))
        three = load.commit_frame("offsets", names[0], 3 * each)
        self.measure(f"OffsetCommit of {3 * each}, most of them unknown", partial(self.peer.exchange, three))
        self.pipelined(load.commit_frame("offsets", name, each) for name in names)
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=list(range(each))) for name in names]
        for what, topics in (("those of ten topics", asked), ("all", None)):
            group = OffsetFetchRequestGroup(group_id="offsets", topics=topics)
            fetch = partial(self.send, ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))
            self.measure(f"OffsetFetch of {10 * each} partitions, {what}", fetch)
        self.measure("… and their topics are deleted", partial(self.delete, names), 1)

    def subscription(self) -> None:
        names = topics_of(10_000 // self.sizes, "some-longer-name-of-a-topic")
        for start in range(0, len(names), 2_000):
            chunk = names[start : start + 2_000]
            self.measure(f"CreateTopics of {len(chunk)}", partial(self.create, chunk, 1), 1)
        numbers = iter(range(1_000))
        frames = (self.join("broad", f"member-{number}", names) for number in numbers)
        self.measure(f"a join that names {len(names)} topics", lambda: self.peer.exchange(next(frames)))
        count = iter(range(2, 1_000))
        self.measure("… and one of them grows", partial(self.grow, names[0], count))
        self.measure("ConsumerGroupDescribe of that group", partial(self.describe, "broad"))
        self.measure("/v1/groups/{id} of that group", partial(self.get, "/v1/groups/broad"))
        self.measure("/v1/topics", partial(self.get, "/v1/topics"))
        resources = [
            DescribeConfigsResource(resource_type=GROUP_CONFIG, resource_name=f"g-{number}")
            for number in range(1_000)
        ]
        request = DescribeConfigsRequest(
            resources=resources, include_synonyms=True, include_documentation=True
        )
        self.measure(
            "DescribeConfigs of 1000 groups", partial(self.send, ApiKey.DESCRIBE_CONFIGS, 4, request)
        )
        listing = ListConfigResourcesRequest(resource_types=[TOPIC_CONFIG])
        what = f"ListConfigResources, {len(names)} topics"
        self.measure(what, partial(self.send, ApiKey.LIST_CONFIG_RESOURCES, 1, listing))

    def members(self) -> None:
        count, names = 10_000 // self.sizes, topics_of(100, "hundred")
        self.create(names, 1_000 // self.sizes)
        self.measure(
            f"{count} members join, each naming 100 topics",
            lambda: self.pipelined(self.join("large", f"member-{n:05}", names) for n in range(count)),
            1,
        )
        time.sleep(SETTLE_S)
        self.measure("… while their target is written", partial(time.sleep, 2 * SETTLE_S), 1)
        self.measure("ConsumerGroupDescribe of that group", partial(self.describe, "large"))
        self.measure("/v1/groups/{id} of that group", partial(self.get, "/v1/groups/large"))
        self.measure("/metrics", partial(self.get, "/metrics"))

    def describe(self, group_id: str) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        self.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)

    def groups(self) -> None:
        count = 100_000 // self.sizes
        self.create(["common", "other"], 1)
        self.pipelined(self.join(f"group-{n:06}", "member", ["common"]) for n in range(count // 2))
        self.pipelined(load.commit_frame(f"group-{n:06}", "other", 1) for n in range(count // 2, count))
        self.measure(
            f"ListGroups, {count} groups", partial(self.send, ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        )
        self.measure("/v1/groups", partial(self.get, "/v1/groups?limit=1000"))
        self.measure("/metrics", partial(self.get, "/metrics"))
        news = iter(topics_of(100, "new"))
        self.measure("a topic is created that no group knows", lambda: self.create([next(news)], 1))
        self.measure(
            "a topic grows that half of them subscribe to", partial(self.grow, "common", iter((2,))), 1
        )
        self.measure(
            "a topic is deleted of which half of them have offsets", partial(self.delete, ["other"]), 1
        )
        self.measure("… in the seconds after", partial(time.sleep, SETTLE_S), 1)

    def classic(self) -> None:
        """A group of the classic protocol whose members all join again, each over its own connection."""
        for count in (1_000 // self.sizes, 2_500 // self.sizes):
            with load.peers(self.address, count) as opened:
                for peer in opened:
                    peer.socket.settimeout(600)
                members: list[list[ClassicMember]] = []
                name = f"classic-{count}"
                self.measure(
                    f"{count:,} classic members join",
                    partial(self._stable, members, opened, name),
                    1,
                )
                self.measure(
                    f"{count:,} classic members, one leaves and the others join again",
                    lambda members=members: members.append(classic.rejoin_after_leaving(members[-1])),  # type: ignore[misc]
                    3,
                )

    def _stable(self, members: list[list[ClassicMember]], opened: list[load.Peer], group_id: str) -> None:
        members.append(classic.stable_members(opened, group_id))

    def migration(self) -> None:
        """A consumer joins a classic group, which becomes a consumer group, and leaves it again."""
        for count in (1_000 // self.sizes, 2_500 // self.sizes):
            name = f"migrating-{count}"
            topics = [f"{name}-{number}" for number in range(MIGRATING_TOPICS)]
            self.create(topics, 2 * count // len(topics))
            with load.peers(self.address, count) as opened:
                for peer in opened:
                    peer.socket.settimeout(600)
                classic.stable_members(opened, name, classic.Embedded(topics, 2 * count // len(topics)))
                for _ in range(2):
                    join = self.join(name, "consumer", topics)
                    what = f"{count:,} classic members, a consumer joins (upgrade)"
                    self.measure(what, partial(self.expect, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join), 1)
                    leave = self.leave(name, "consumer")
                    what = "… and leaves (downgrade)"
                    self.measure(what, partial(self.expect, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leave), 1)

    def expect(self, api: ApiKey, version: int, frame: bytes) -> None:
        answer = decode_response(api, version, self.peer.exchange(frame)[4:])[1]
        assert not answer.error_code, answer

    def leave(self, group_id: str, member_id: str) -> bytes:
        request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=-1)
        return encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 0, load.CLIENT_ID, request)

    def transactions(self) -> None:
        """Offsets that many open transactions have pending, superseded, resolved and removed."""
        topic, group, each = "pending", "pending", 1_000 // self.sizes
        self.create([topic], each)
        pend = partial(self.pend, group, topic, each)
        what = f"{PRODUCERS} transactions commit {each} partitions each"
        producers = pend(what)
        commit = load.commit_frame(group, topic, each)
        self.measure("… and a plain commit supersedes all", partial(self.peer.exchange, commit), 1)
        self.measure("… another plain commit", partial(self.peer.exchange, commit))
        self.measure("… and the transactions abort", partial(self.end, producers, committed=False), 1)
        producers = pend("… the same again")
        self.measure("… and the newest commits", partial(self.end, producers[-1:], committed=True), 1)
        self.measure("… and the others, oldest first", partial(self.end, producers[:-1], committed=True), 1)
        producers = pend("… the same again")
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in range(each)],
                )
            ],
        )
        self.measure(
            "… and OffsetDelete of all partitions", partial(self.ask, ApiKey.OFFSET_DELETE, 0, request), 1
        )
        self.end(producers, committed=False)
        producers = pend("… the same again")
        delete = DeleteGroupsRequest(groups_names=[group])
        self.measure("… and DeleteGroups", partial(self.ask, ApiKey.DELETE_GROUPS, 2, delete), 1)
        self.end(producers, committed=False)

    def pend(self, group_id: str, topic: str, partitions: int, what: str) -> list[Producer]:
        producers: list[Producer] = []

        def begin() -> None:
            for number in range(PRODUCERS):
                producers.append(Producer(self.peer, f"producer-{number}"))
                producers[-1].commit(group_id, topic, partitions, number)

        self.measure(what, begin, 1)
        return producers

    def end(self, producers: list[Producer], *, committed: bool) -> None:
        for producer in producers:
            producer.end(committed=committed)

    def full_frames(self) -> None:
        """The largest requests that fit into one frame; some exceed a limit and cost their connection."""
        self.create([full_frames.TOPIC], 1)
        for what, frame in full_frames.frames():
            self.measure(what, partial(self.ask_once, frame), 3)

    def ask_once(self, frame: bytes) -> None:
        peer = load.Peer(self.address)
        peer.socket.settimeout(60)
        with contextlib.suppress(ConnectionError, TimeoutError):
            peer.exchange(frame)
        peer.close()


def serve(directory: Path, meter: Meter, scenario: Callable[[Any], None]) -> None:
    """Run a node in this thread until `scenario`, in another, has finished."""
    identity = NodeIdentity(cluster_id="turns", node_id=1, incarnation="turns", num_shards=1)
    format_node(OsFiles(), str(directory), identity)
    settings = load_settings(
        None,
        {},
        {
            "node.id": "1",
            "data.dir": str(directory),
            "kafka.port": "0",
            "http.port": "0",
            "cluster.shards": "1",
            "log.level": "error",
            "group.consumer.session.timeout.ms": "1800000",
            "scratch.log.enable": "true",
        },
    )
    look_at_the_young()
    gc.disable()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    meter.watch()
    process = node_main.ServingNode(loop, settings, node_main.Arguments())
    loop.call_later(READY_S, lambda: threading.Thread(target=scenario, args=(process,), daemon=True).start())
    loop.run_until_complete(process.run())
    loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="of the cases that shall run")
    parser.add_argument("--divide", type=int, default=1, help="all sizes by this")
    options = parser.parse_args()
    meter, worst_ms = Meter(), [ALLOWED_MS + 1]

    def scenario(process: Any) -> None:
        node = process._node
        try:
            http = f"http://{process._http.address[0]}:{process._http.address[1]}"
            found = Scenario(meter, node.kafka.address, http, options.word, options.divide)
            found.run()
            worst_ms[0] = found.worst_ms
        except BaseException:
            traceback.print_exc()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as directory:
        serve(Path(directory), meter, scenario)
    return int(worst_ms[0] > ALLOWED_MS)


if __name__ == "__main__":
    sys.exit(main())
