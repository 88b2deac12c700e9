"""The consumer's connections to an Apache Kafka broker: TLS and SASL as the broker understands them."""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache import LOOPBACK, ApacheKafka, java_command, launch_kafka
from client.aio.loop import BackgroundDriver, now_ms, real_environment
from client.aio.transport import AsyncioConnections
from client.core.background import Background
from client.core.coordinator import CoordinatorManager
from client.core.events import BackgroundEvent, ErrorEvent
from client.core.metadata import MetadataManager
from client.core.network.delegate import NetworkDelegate
from client.core.settings import ConsumerSettings
from tests.java.toolbox import CONFIGS
from tests.support.certificates import authority, certificate, openssl

WAIT_S = 20.0
SESSION_MS = 3_000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann=pencil;"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": PLAIN,
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": SCRAM,
    "listener.name.sasl.connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("security")


@pytest.fixture(scope="module")
def kafka(home: Path) -> Iterator[ApacheKafka]:
    made = authority(home, "authority")
    files = certificate(made, "broker")
    pem = made / "keystore.pem"
    pem.write_text(
        Path(files.key_file).read_text("utf-8") + Path(files.cert_file).read_text("utf-8"), "utf-8"
    )
    tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}
    listeners = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL"}
    with launch_kafka(home / "kafka", settings=SETTINGS | tls, listeners=listeners, heap_mb=512) as started:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            add = ("--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config")
            words = (*add, f"{mechanism}=[password=pencil]", "--bootstrap-server", started.bootstrap)
            subprocess.run(java_command(CONFIGS, *words), check=True, capture_output=True, timeout=60)
        yield started


class Connected:
    """The network half of a consumer."""

    def __init__(self, settings: ConsumerSettings) -> None:
        env, self.events = real_environment(), list[BackgroundEvent]()
        self.driver = BackgroundDriver(lambda: None)
        self.connections = AsyncioConnections(settings, self.driver)
        self.delegate = NetworkDelegate(settings, env, self.connections, self.events.append)
        self.connections.events = self.delegate
        self.coordinator = CoordinatorManager(settings, env, self.delegate, self.events.append)
        self.metadata = MetadataManager(settings, env, self.delegate, self.events.append)
        self.driver.background = Background([self.coordinator, self.metadata], {}, self.delegate, deque())

    async def until(self, is_so: Any) -> None:
        """Wait for a condition of the background side, or for an error."""
        deadline_ms = now_ms() + WAIT_S * 1000
        while not is_so() and not self.events:
            assert now_ms() < deadline_ms, self.delegate.trouble
            await asyncio.sleep(0.02)

    @property
    def errors(self) -> list[str]:
        return [str(event.error) for event in self.events if isinstance(event, ErrorEvent)]


@asynccontextmanager
async def connected(kafka: ApacheKafka, listener: str, **settings: Any) -> Any:
    bootstrap = ((LOOPBACK, kafka.listener_ports[listener]),)
    one = Connected(ConsumerSettings(bootstrap_servers=bootstrap, group_id="g", **settings))
    one.driver.wake()
    try:
        yield one
    finally:
        one.delegate.close(now_ms())
        one.driver.stop()
        await one.connections.wait_closed()


def sasl(mechanism: str, password: str = "pencil") -> dict[str, Any]:
    names = {"sasl_username": "ann", "sasl_password": password}
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **names}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_broker_takes_the_password(kafka: ApacheKafka, mechanism: str) -> None:
    async with connected(kafka, "SASL", **sasl(mechanism)) as one:
        await one.until(lambda: one.coordinator.node_id is not None and one.metadata.view.nodes)
        assert one.errors == []
        assert one.coordinator.node_id == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
async def test_the_broker_refuses_what_it_does_not_take(kafka: ApacheKafka, mechanism: str) -> None:
    settings = sasl(mechanism, "wrong") | {"sasl_oauthbearer_token_callback": lambda config: "token"}
    async with connected(kafka, "SASL", **settings) as one:
        await one.until(lambda: False)
        (error,) = one.errors
        assert error.startswith("authentication failed: ")
        assert ("Authentication failed" in error) == (mechanism != "OAUTHBEARER")


async def test_a_session_is_renewed_before_the_broker_ends_it(kafka: ApacheKafka) -> None:
    async with connected(kafka, "SASL", **sasl("SCRAM-SHA-256"), metadata_max_age_ms=200) as one:
        await one.until(lambda: one.metadata.view.nodes)
        lost: list[str] = []
        one.delegate.lost_listeners.append(lambda node_id, purpose, why, at_ms: lost.append(why))
        await asyncio.sleep(2 * SESSION_MS / 1000)
        assert (lost, one.errors) == ([], [])


@openssl
async def test_tls_with_a_certificate_of_a_known_authority(kafka: ApacheKafka, home: Path) -> None:
    tls = {"security_protocol": "SSL", "ssl_ca_location": str(home / "authority" / "ca.pem")}
    async with connected(kafka, "TLS", **tls, ssl_check_hostname=False) as one:
        await one.until(lambda: one.coordinator.node_id is not None)
        assert one.errors == []
    async with connected(kafka, "TLS", **tls) as one:
        await one.until(lambda: False)
        assert "certificate verify failed" in one.errors[0]


async def test_a_plain_connection_to_a_listener_with_tls_says_what_may_be_wrong(kafka: ApacheKafka) -> None:
    async with connected(kafka, "TLS") as one:
        await one.until(lambda: one.delegate.trouble)
        assert "(is security.protocol right?)" in one.delegate.trouble
