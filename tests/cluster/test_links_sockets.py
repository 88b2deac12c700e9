"""Links over real sockets: the asyncio Host, TCP_NODELAY, hostile bytes, mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.host.accepting import CUT_MAX, Acceptor
from cluster.host.host_asyncio import AsyncioHost
from raftlog.env.files import OsFiles
from raftlog.env.host import TlsSettings
from raftlog.storage.directory import NodeDirectory, NodeIdentity, format_node, open_node
from raftlog.transport import PeerAddress, PeersError, PeerSettings, SelfDescription
from raftlog.transport.links import STRANGERS_MAX, Links
from tests.cluster.sim_links import SHARDS, Recorder
from tests.support.certificates import authority, certificate, openssl
from tests.support.waiting import until

DESCRIPTION = SelfDescription(
    release="1.0",
    kafka_host="127.0.0.1",
    kafka_port=9092,
    http_host="127.0.0.1",
    http_port=8092,
    format_level_max=1,
    format_level=1,
)


class LinkedPair:
    """Two nodes' links on one loop, in real directories."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sockets_before = _open_sockets()
        self.host = AsyncioHost(asyncio.get_running_loop())
        self.secret = home / "secret"
        self.secret.write_bytes(b"0123456789abcdef\n")
        self.secret.chmod(0o600)
        self.nodes = tuple(
            PeerAddress(node_id=node_id, host="127.0.0.1", port=_free_port()) for node_id in (1, 2)
        )
        self.links: dict[int, Links] = {}
        self.users: dict[int, Recorder] = {}
        self.directories: list[NodeDirectory] = []

    async def start(self, node_id: int, tls: TlsSettings | None = None) -> Links:
        path = str(self.home / f"node-{node_id}")
        identity = NodeIdentity(
            cluster_id="cluster",
            node_id=node_id,
            incarnation=f"disk {node_id}",
            num_shards=2,
            voters=(1, 2),
        )
        format_node(OsFiles(), path, identity)
        directory = open_node(OsFiles(), path, self.host.fresh_id)
        self.directories.append(directory)
        own = self.nodes[node_id - 1]
        settings = PeerSettings(
            nodes=self.nodes, bind_host=own.host, bind_port=own.port, secret_file=str(self.secret), tls=tls
        )
        links = Links(self.host, directory, settings, lambda: DESCRIPTION)
        self.users[node_id] = Recorder()
        for shard in SHARDS:
            links.attach(shard, self.users[node_id])
        done: asyncio.Future[BaseException | None] = self.host.loop.create_future()
        links.start(done.set_result)
        error = await done
        if error is not None:
            raise error
        self.links[node_id] = links
        return links

    async def until_up(self) -> None:
        await until(lambda: all(links.peers for links in self.links.values()))

    async def close(self) -> None:
        for links in self.links.values():
            links.stop()
        await until(lambda: _open_sockets() <= self.sockets_before)
        for directory in self.directories:
            directory.close()
        self.host.close()


def _open_sockets() -> int:
    """The number of this process's sockets."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the directory that is being listed
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return count


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[LinkedPair]:
    pair = LinkedPair(tmp_path)
    yield pair
    await pair.close()


async def test_two_nodes_talk_without_delay_of_small_packets(pair: LinkedPair) -> None:
    await pair.start(1)
    await pair.start(2)
    await pair.until_up()
    for links, other in ((pair.links[1], 2), (pair.links[2], 1)):
        transport = links._up[other]._transport
        assert transport is not None
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    sent = [b"%d" % number for number in range(1_000)] + [bytes(5_000_000), b"end"]
    for payload in sent:
        pair.links[1].send(2, 0, payload)
    await until(lambda: len(pair.users[2].messages(1)) == len(sent))
    assert pair.users[2].messages(1) == sent


async def test_a_node_that_comes_back_is_found_again(pair: LinkedPair) -> None:
    await pair.start(1)
    await pair.start(2)
    await pair.until_up()
    transport = pair.links[2]._up[1]._transport
    assert transport is not None
    transport.abort()
    await until(lambda: pair.users[1].heard.count(("up", 2)) == 2 * len(SHARDS))


async def test_strangers_on_a_real_port(pair: LinkedPair, caplog: pytest.LogCaptureFixture) -> None:
    await pair.start(1)
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", bytes(100_000)):
        reader, writer = await asyncio.open_connection("127.0.0.1", pair.nodes[0].port)
        writer.write(data)
        with contextlib.suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 1.0)
        writer.close()
    await pair.start(2)
    await pair.until_up()
    assert all(record.exc_info is None for record in caplog.records)
    assert sum("not a Quorate node" in record.message for record in caplog.records) == 3


async def test_a_secret_that_other_users_can_read_is_refused(pair: LinkedPair) -> None:
    pair.secret.chmod(0o644)
    with pytest.raises(PeersError, match="is readable by all users: run chmod 600"):
        await pair.start(1)
    pair.secret.unlink()
    with pytest.raises(PeersError, match="cannot be read: No such file"):
        await pair.start(2)


# TLS


@openssl
async def test_mutual_tls_admits_no_client_without_a_certificate(
    pair: LinkedPair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = authority(tmp_path, "ours")
    await pair.start(1, certificate(ours, "one"))
    await pair.start(2, certificate(ours, "two"))
    await pair.until_up()
    transport = pair.links[1]._up[2]._transport
    assert transport is not None
    assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
    pair.links[1].send(2, 0, bytes(3_000_000))
    await until(lambda: pair.users[2].messages(1) == [bytes(3_000_000)])
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.nodes[0].port)
    writer.write(b"plain text, a whole line of it\r\n")
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 2.0)
    writer.close()
    assert pair.links[1].peers
    assert all(record.exc_info is None for record in caplog.records if record.levelno > logging.DEBUG)


@openssl
async def test_who_never_begins_a_tls_handshake_takes_a_place_and_no_more(
    pair: LinkedPair, tmp_path: Path
) -> None:
    ours = authority(tmp_path, "ours")
    await pair.start(1, certificate(ours, "one"))
    address = ("127.0.0.1", pair.nodes[0].port)
    opened = [await asyncio.open_connection(*address) for _ in range(STRANGERS_MAX + 30)]
    strangers = [asyncio.create_task(reader.read()) for reader, _ in opened]
    await until(lambda: sum(stranger.done() for stranger in strangers) >= 30, within_s=1.5)
    assert len(pair.links[1]._open) == STRANGERS_MAX
    assert sum(stranger.done() for stranger in strangers) == 30
    await pair.start(2, certificate(ours, "two"))
    await pair.until_up()
    await until(lambda: all(stranger.done() for stranger in strangers))
    await until(lambda: not pair.links[1]._listener._opening)  # type: ignore[union-attr]
    for stranger, (_, writer) in zip(strangers, opened, strict=True):
        stranger.exception()
        writer.close()


@openssl
async def test_a_burst_of_strangers_holds_a_bounded_number_of_descriptors(
    pair: LinkedPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aborted handshake keeps its descriptor for some turns; the backlog must wait meanwhile."""
    held = []
    opening = Acceptor._open

    def counted(acceptor: Acceptor, accepted: socket.socket) -> None:
        opening(acceptor, accepted)
        held.append(len(acceptor._opening))

    monkeypatch.setattr(Acceptor, "_open", counted)
    ours = authority(tmp_path, "ours")
    await pair.start(1, certificate(ours, "one"))
    address = ("127.0.0.1", pair.nodes[0].port)
    burst = [socket.create_connection(address) for _ in range(6 * STRANGERS_MAX)]  # waits in the backlog
    try:
        await until(lambda: len(held) == len(burst))
        assert max(held) == STRANGERS_MAX + CUT_MAX
        await pair.start(2, certificate(ours, "two"))
        await pair.until_up()
    finally:
        for stranger in burst:
            stranger.close()
    await until(lambda: not pair.links[1]._listener._opening)  # type: ignore[union-attr]


@openssl
@pytest.mark.parametrize("case", ["another authority", "no certificate"])
async def test_a_certificate_of_another_authority_is_no_certificate(
    pair: LinkedPair, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.start(1, certificate(authority(tmp_path, "ours"), "one"))
    await pair.start(
        2, certificate(authority(tmp_path, "theirs"), "two") if case == "another authority" else None
    )
    await until(lambda: pair.links[2].status()[0]["dials"] > 3)
    assert pair.links[2].status()[0]["trouble"]
    assert not pair.links[1].peers
    assert not pair.links[2].peers
    if case == "another authority":
        assert "certificate" in pair.links[2].status()[0]["trouble"].lower()
    assert all(record.exc_info is None for record in caplog.records if record.levelno > logging.DEBUG)


@openssl
async def test_files_that_are_no_certificates_are_named(pair: LinkedPair, tmp_path: Path) -> None:
    tls = certificate(authority(tmp_path, "ours"), "one")
    Path(tls.cert_file).write_text("not a certificate")
    with pytest.raises(OSError, match=r"cannot use .*one\.pem with .*one\.key"):
        await pair.start(1, tls)
