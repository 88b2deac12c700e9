"""One side: a server, a connection to it, and the ids and epochs it has assigned so far.

Requests are sent with the messages of `wire`, on one connection per script; replies come back decoded. The
client models of a script's members live here too: they know only what this server has sent them.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.protocol import decode_response, encode_request
from wire.schema import Message

CLIENT_ID: Final = "differential"
REPLY_S_MAX: Final = 20.0
METADATA_VERSION: Final = 12
UNKNOWN_TAG: Final = 99
MADE_ID: Final = re.compile(r"(.+?)-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[\w-]{22})")
"""A member id that a server made: the client id or the instance id, and a random part."""
RANDOM_ID: Final = re.compile(r"[\w-]{22}")
"""One that is random alone, as Kafka makes them in consumer groups."""
TopicIds = dict[str, bytes]
Owned = dict[str, list[int]]
"""Topic name → partitions."""


@dataclass(slots=True)
class MemberModel:
    """The state of one client, derived only from its server's replies."""

    member_id: str
    epoch: int = 0
    before: int = 0
    """The epoch before the current one; 0 if none."""
    told: Owned = field(default_factory=dict)
    kept: Owned = field(default_factory=dict)
    """The partitions it owns until it acknowledges `told`."""
    topics: list[str] = field(default_factory=list)
    assignor: str | None = None
    instance_id: str | None = None
    regex: str | None = None
    is_behind: bool = False
    """Its last reply was lost."""
    has_missed: bool = False
    """A reply was lost, and none with an assignment has come since."""
    is_away: bool = False
    """A static member that has left temporarily (epoch −2)."""

    def heard(self, epoch: int, assigned: Owned | None) -> None:
        self.is_behind = False
        if epoch != self.epoch:
            self.before, self.epoch = self.epoch, epoch
        if assigned is not None:
            self.told, self.has_missed = assigned, False

    def acknowledged(self) -> None:
        self.kept = self.told

    def fenced(self) -> None:
        self.epoch, self.before, self.told, self.kept = 0, 0, {}, {}
        self.is_behind = self.has_missed = False

    def owned(self, which: str) -> Owned | None:
        """Return the partitions that a heartbeat reports as owned."""
        if which == "null":
            return None
        if which == "none":
            return {}
        if which == "told":
            return self.told
        names = self.told.keys() | self.kept.keys()
        return {name: sorted({*self.told.get(name, ()), *self.kept.get(name, ())}) for name in names}


@dataclass(slots=True)
class ClassicModel:
    """The state of one client of the classic protocol, derived only from its server's replies."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    before: int = -1
    """The generation before the current one; -1 if none."""
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: dict[str, bytes] = field(default_factory=dict)
    """The ids of all members and their metadata, as the leader was told them."""
    owned: Owned = field(default_factory=dict)
    """Its newest assignment, if that says partitions."""

    @property
    def is_leader(self) -> bool:
        return bool(self.member_id) and self.leader == self.member_id


@dataclass(slots=True)
class ProducerModel:
    """The id and epoch of a transactional producer, as its server gave them."""

    producer_id: int = -1
    epoch: int = -1


class ScriptConnection:
    """A connection to a server. It has one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @staticmethod
    async def open(address: tuple[str, int]) -> ScriptConnection:
        return ScriptConnection(*await asyncio.open_connection(*address))

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def send(
        self,
        api: ApiKey,
        version: int,
        body: Message,
        *,
        client_id: str = CLIENT_ID,
        has_unknown_field: bool = False,
    ) -> None:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, client_id, body)
        self._writer.write(_with_unknown_field(frame) if has_unknown_field else frame)

    async def take(self, api: ApiKey, version: int, within_s: float = REPLY_S_MAX) -> Any:
        """Return the reply to the request that was sent last. Raises TimeoutError if none comes."""
        async with asyncio.timeout(within_s):
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            payload = await self._reader.readexactly(length)
        correlation_id, answer = decode_response(api, version, payload)
        assert correlation_id == self._correlation_id, "answered out of order"
        return answer

    async def ask(self, api: ApiKey, version: int, body: Message, *, has_unknown_field: bool = False) -> Any:
        self.send(api, version, body, has_unknown_field=has_unknown_field)
        return await self.take(api, version)


@dataclass(frozen=True, slots=True)
class Manners:
    """The server's numbering of group epochs, as far as the barriers depend on it."""

    new_group_epoch: int
    """The epoch counted for a group that does not exist yet: its first member raises it by one."""
    every_join_moves: bool
    """Every join raises the group epoch, even with only an expression that is not resolved yet."""


KAFKAS: Final = Manners(1, every_join_moves=False)
OURS: Final = Manners(0, every_join_moves=True)


class Side:
    """One server, as one script sees it."""

    def __init__(self, name: str, address: tuple[str, int], shared_ids: TopicIds, manners: Manners) -> None:
        self.name = name
        self.address = address
        self.manners = manners
        self.topic_ids = dict(shared_ids)
        """Topic ids by label: the topic's name, or `name#2` for the second topic of that name."""
        self._labels = {topic_id: name for name, topic_id in shared_ids.items()}
        self._times_made: Counter[str] = Counter()
        self.members: dict[str, MemberModel] = {}
        self.ghosts: dict[str, MemberModel] = {}
        """Replaced processes of static members."""
        self.times_joined: Counter[str] = Counter()
        self.classics: dict[str, ClassicModel] = {}
        self.producers: dict[str, ProducerModel] = {}
        self.made_ids: dict[str, str] = {}
        """Member ids that the server has made, each with its name here."""
        self._times_named: Counter[str] = Counter()
        self._connection: ScriptConnection | None = None

    async def connect(self) -> None:
        self._connection = await ScriptConnection.open(self.address)

    async def reconnect(self) -> None:
        """Break the connection, losing any reply still in flight, and open another."""
        if self._connection is not None:
            self._connection.abort()
        await self.connect()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def ask(self, api: ApiKey, version: int, body: Message, *, has_unknown_field: bool = False) -> Any:
        """Send one request and return its reply. Raises TimeoutError if none comes."""
        assert self._connection is not None
        return await self._connection.ask(api, version, body, has_unknown_field=has_unknown_field)

    async def learn_topics(self, names: list[str]) -> dict[str, int]:
        """Request ids and partition counts; topics that do not exist are left out."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        answer = await self.ask(ApiKey.METADATA, METADATA_VERSION, request)
        found = {}
        for topic in answer.topics:
            if not topic.error_code:
                self._label(topic.name, topic.topic_id)
                found[topic.name] = len(topic.partitions)
        return found

    def _label(self, name: str, topic_id: bytes) -> None:
        if topic_id in self._labels:
            return
        self._times_made[name] += 1
        label = name if self._times_made[name] == 1 else f"{name}#{self._times_made[name]}"
        self._labels[topic_id] = label
        self.topic_ids[label] = self.topic_ids[name] = topic_id

    def label_of(self, topic_id: bytes) -> str:
        return self._labels.get(topic_id, topic_id.hex() if any(topic_id) else "")

    def who_is(self, member_id: str | None) -> str | None:
        """Return the script's name for a member that this server knows by an id."""
        for who, member in self.members.items():
            if member.member_id == member_id:
                return who
        return self._name_made(member_id) if member_id else member_id

    def _name_made(self, member_id: str) -> str:
        """Return the name of an id that the server has made: what it begins with, and a number."""
        if member_id not in self.made_ids:
            found = MADE_ID.fullmatch(member_id)
            if found is None:
                return member_id
            self.name_made(member_id, found[1])
        return self.made_ids[member_id]

    def name_made(self, member_id: str, begins: str) -> None:
        """Name an id that the server has made as one that begins like this."""
        if member_id not in self.made_ids:
            self._times_named[begins] += 1
            self.made_ids[member_id] = f"{begins}#{self._times_named[begins]}"


def _with_unknown_field(frame: bytes) -> bytes:
    """Add a tagged field: a flexible request ends with the number of its tagged fields, which was 0."""
    assert frame[-1] == 0
    fields = bytes([1, UNKNOWN_TAG, 3]) + b"new"
    length = len(frame) - 5 + len(fields)
    return struct.pack(">i", length) + frame[4:-1] + fields
