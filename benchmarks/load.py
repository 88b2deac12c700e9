"""A load generator on raw sockets, and a meter of the node's CPU time.

Frames are encoded once and sent repeatedly; replies are counted by their length and their error code is
checked, so that the generator costs a fraction of what it measures. The window is sliding: each reply
triggers another request, so `in_flight` requests are always out on each connection.

All figures are per connection of plain TCP on loopback. CPU seconds are the node's own, user and system, from
/proc/<pid>/stat, so they do not depend on what else the machine does.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.protocol import decode_response, encode_request

CLIENT_ID = "load"
HEARTBEAT_VERSION = 1
COMMIT_VERSION = 9
READ_BYTES = 1 << 18
REPLY_TIMEOUT_S = 30.0
SETTLE_TIMEOUT_S = 60.0
PROBE_BYTES = 300
"""About the size of one commit's frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The result of one run; `cpu_s` is the node's CPU time during it."""

    requests: int
    elapsed_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.requests / self.elapsed_s

    @property
    def per_cpu_s(self) -> float:
        return self.requests / self.cpu_s if self.cpu_s else float("nan")


def cpu_seconds(*pids: int) -> float:
    """User and system time used by processes with all their threads, in seconds (resolution 10 ms)."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# One connection


class Peer:
    """One blocking connection for setup: a request and its decoded response."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=REPLY_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, api_key: ApiKey, version: int, body: Any) -> Any:
        payload = self.exchange(encode_request(api_key, version, 0, CLIENT_ID, body))
        return decode_response(api_key, version, payload[4:])[1]

    def exchange(self, frame: bytes) -> bytes:
        """Exchange one frame for another, both including their length."""
        self.socket.sendall(frame)
        head = self.exactly(4)
        return head + self.exactly(struct.unpack(">i", head)[0])

    def close(self) -> None:
        self.socket.close()

    def skip(self, num_bytes: int) -> None:
        """Read and discard bytes that are known to arrive."""
        self.exactly(num_bytes)

    def exactly(self, num_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < num_bytes:
            piece = self.socket.recv(num_bytes - len(data))
            if not piece:
                raise ConnectionError("the node closed the connection")
            data += piece
        return bytes(data)


@contextlib.contextmanager
def peers(address: tuple[str, int], count: int) -> Iterator[list[Peer]]:
    opened = [Peer(address) for _ in range(count)]
    try:
        yield opened
    finally:
        for peer in opened:
            peer.close()


def create_topic(peer: Peer, name: str, num_partitions: int) -> None:
    """Create a topic; one that exists already is fine (error 36)."""
    topic = CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=-1)
    answer = peer.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    if answer.topics[0].error_code not in (0, 36):
        raise RuntimeError(f"creating {name} failed: error {answer.topics[0].error_code}")


# Heartbeats


class Member:
    """A member of a consumer group that acknowledges every assignment."""

    def __init__(self, peer: Peer, group_id: str, member_id: str, topics: list[str]) -> None:
        self._peer = peer
        self._group_id = group_id
        self._member_id = member_id
        self._topics = topics
        self._owned: list[TopicPartitions] = []
        self.epoch = 0

    @property
    def owns_some(self) -> bool:
        return bool(self._owned)

    def beat(self) -> bool:
        """Send one heartbeat; returns True if it brought nothing new."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.subscribed_topic_names = list(self._topics)
            request.rebalance_timeout_ms = 60_000
        request.topic_partitions = self._owned
        answer: ConsumerGroupHeartbeatResponse = self._peer.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, request
        )
        if answer.error_code:
            raise RuntimeError(f"heartbeat failed: error {answer.error_code} {answer.error_message}")
        settled = answer.member_epoch == self.epoch
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = [
                TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
                for topic in answer.assignment.topic_partitions
            ]
            settled = settled and given == self._owned
            self._owned = given
        return settled

    def steady_frame(self) -> bytes:
        """The heartbeat that this member repeats from now on."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=-1,
        )
        return encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, 0, CLIENT_ID, request)


def settled_members(opened: list[Peer], group_id: str, topics: list[str]) -> list[Member]:
    """One member per connection, all settled at the same epoch; the topics have a partition for each."""
    members = [
        Member(peer, group_id, f"{group_id}-{position:04}", topics) for position, peer in enumerate(opened)
    ]
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    calm_rounds = 0
    while calm_rounds < 2:
        beats = [member.beat() for member in members]
        calm = all(beats) and len({member.epoch for member in members}) == 1
        calm = calm and all(member.owns_some for member in members)  # else the next target is still due
        calm_rounds = calm_rounds + 1 if calm else 0
        if time.monotonic() > deadline:
            raise RuntimeError(f"{group_id} did not settle within {SETTLE_TIMEOUT_S:.0f} s")
    return members


# Load


def sliding_window(
    opened: list[Peer], frames: list[bytes], in_flight: int, duration_s: float, *pids: int
) -> Rate:
    """Keep `in_flight` copies of each connection's frame in flight for `duration_s`."""
    lengths = [len(peer.exchange(frame)) for peer, frame in zip(opened, frames, strict=True)]
    batches = [frame * in_flight for frame in frames]
    poll = select.epoll()
    state: dict[int, tuple[socket.socket, bytes, int, int]] = {}
    for peer, frame, batch, length in zip(opened, frames, batches, lengths, strict=True):
        peer.socket.setblocking(False)
        state[peer.socket.fileno()] = (peer.socket, batch, len(frame), length)
        poll.register(peer.socket.fileno(), select.EPOLLIN)
    partial = dict.fromkeys(state, 0)
    odd: dict[int, bytes] = {}
    done = 0
    cpu_before, start = cpu_seconds(*pids), time.perf_counter()
    end = start + duration_s
    for sock, batch, _, _ in state.values():
        sock.sendall(batch)
    try:
        while (now := time.perf_counter()) < end:
            for number, _ in poll.poll(0.1):
                sock, batch, frame_bytes, reply_bytes = state[number]
                data = sock.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("the node closed the connection")
                replies, rest = divmod(partial[number] + len(data), reply_bytes)
                if rest and not partial[number]:
                    odd[number] = data  # the begin of a reply, or one of another length
                partial[number] = rest
                done += replies
                if replies:
                    sock.sendall(batch[: replies * frame_bytes])
        cpu_s = cpu_seconds(*pids) - cpu_before
    finally:
        poll.close()
    for peer, length in zip(opened, lengths, strict=True):
        number = peer.socket.fileno()
        peer.socket.settimeout(REPLY_TIMEOUT_S)
        peer.skip(in_flight * length - partial[number])  # the window is always full
        if select.select([peer.socket], [], [], 0)[0]:
            raise RuntimeError(f"not all replies were {length} bytes: {odd.get(number, b'').hex()[:400]}")
    return Rate(requests=done, elapsed_s=now - start, cpu_s=cpu_s)


def steady_heartbeats(
    address: tuple[str, int],
    *pids: int,
    connections: int = 50,
    in_flight: int = 16,
    duration_s: float = 5.0,
    topic: str = "bench",
    group_id: str = "bench-heartbeats",
) -> Rate:
    """Heartbeats of one settled group, one member per connection; the topic must exist."""
    with peers(address, connections) as opened:
        members = settled_members(opened, group_id, [topic])
        frames = [member.steady_frame() for member in members]
        rate = sliding_window(opened, frames, in_flight, duration_s, *pids)
        for member in members:
            if not member.beat():
                raise RuntimeError("the group moved during the run: not all heartbeats were steady")
        return rate


def commit_frame(group_id: str, topic: str, partitions: int, offset: int = 1) -> bytes:
    """A commit without a member id, as from an admin client or a consumer with manual assignment."""
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)],
    )
    return encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 0, CLIENT_ID, request)


def check_commit(peer: Peer, frame: bytes) -> None:
    """Send one commit and check that every partition was accepted."""
    _, answer = decode_response(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, peer.exchange(frame)[4:])
    codes = {one.error_code for topic in answer.topics for one in topic.partitions}
    if codes != {0}:
        raise RuntimeError(f"commit failed: errors {sorted(codes)}")


def commits(
    address: tuple[str, int],
    *pids: int,
    connections: int = 50,
    in_flight: int = 16,
    partitions: int = 1,
    duration_s: float = 5.0,
    topic: str = "bench-commits",
) -> Rate:
    """OffsetCommits, one group per connection; multiply by `partitions` for partitions per second."""
    with peers(address, connections) as opened:
        create_topic(opened[0], topic, max(100, partitions))
        frames = [commit_frame(f"bench-{number}", topic, partitions) for number in range(connections)]
        for peer, frame in zip(opened, frames, strict=True):
            check_commit(peer, frame)
        rate = sliding_window(opened, frames, in_flight, duration_s, *pids)
        for peer, frame in zip(opened, frames, strict=True):
            check_commit(peer, frame)
        return rate


def commits_beside_fdatasync_ms(
    address: tuple[str, int], directory: Path, *, rounds: int = 20, count: int = 100
) -> tuple[list[float], list[float]]:
    """Sorted times in ms of sequential commits on one connection, and of the machine's own durable append.

    The two alternate, `count` each, because a disk's speed drifts by more than the difference between them.
    """
    path = directory / "fdatasync.probe"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    data = b"x" * PROBE_BYTES

    def durable_append() -> None:
        os.write(handle, data)
        os.fdatasync(handle)

    commits: list[float] = []
    appends: list[float] = []
    try:
        with peers(address, 1) as (peer,):
            create_topic(peer, "bench-commits", 100)
            frame = commit_frame("bench-sequential", "bench-commits", 1)
            check_commit(peer, frame)
            for _ in range(rounds):
                appends += timed_ms(durable_append, count)
                commits += timed_ms(lambda: peer.exchange(frame), count)
    finally:
        os.close(handle)
        path.unlink()
    return sorted(commits), sorted(appends)


def timed_ms(fn: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1000)
    return times


def median_rate(rates: list[Rate]) -> Rate:
    """The median run by requests per CPU-second."""
    middle = statistics.median_low([rate.per_cpu_s for rate in rates])
    return next(rate for rate in rates if rate.per_cpu_s == middle)
