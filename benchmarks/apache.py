"""Runs Apache Kafka brokers from Maven artifacts, to compare and to measure against.

`launch_kafka` formats and starts brokers in KRaft combined mode on loopback ports, with data and logs in a
folder of their own, and returns when each of them answers and knows the others. tests/java/pom.xml names the
release. Maven resolves it once, and the class path is kept in `build/java` (`make clean` removes it), named
by the pom's checksum.

Invariants: a launch completes within its time limit or raises with the broker's last output; every
started process is ended by its process id, at `stop`, when the launch fails, and when this process exits.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from quorate.connection import ClientConnection, ConnectionLost, VersionMissing
from wire.apis import ApiKey
from wire.messages.metadata import MetadataRequest

REPOSITORY: Final = Path(__file__).parent.parent
POM: Final = REPOSITORY / "tests" / "java" / "pom.xml"
CACHE: Final = REPOSITORY / "build" / "java"
CLASS_PATH_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:build-classpath"

JAVA_VERSION_MIN: Final = 17
MAVEN_S_MAX: Final = 300.0
"""Seconds to resolve the 90 artifacts into an empty local repository."""

FORMAT_S_MAX: Final = 60.0
START_S_MAX: Final = 90.0
STOP_S_MAX: Final = 20.0
ASK_S: Final = 2.0
PAUSE_S: Final = 0.05
LOOPBACK: Final = "127.0.0.1"
METADATA_VERSION: Final = 12
LAST_WORDS_BYTES: Final = 2_000

QUICK_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM options for tools that run for a second, too short to warm up."""

BROKER_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Djava.awt.headless=true",
)
"""The JVM options of Kafka's own start script."""


class JavaError(Exception):
    """Maven or a Java process failed; holds its last output."""


def java_is_missing() -> str | None:
    """The reason why Apache Kafka cannot be run here, in one line; None if it can."""
    java = shutil.which("java")
    if java is None:
        return f"no Java: install a JDK {JAVA_VERSION_MIN} or newer (java) and Maven (mvn)"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        return f"Java {found[1] if found else '?'} is too old: JDK {JAVA_VERSION_MIN} or newer is needed"
    if shutil.which("mvn") is None and not _class_path_file().exists():
        return "no Maven (mvn), which fetches Apache Kafka"
    return None


def class_path() -> str:
    """The class path of Kafka's broker, clients and tools with all dependencies. Raises JavaError."""
    kept = _class_path_file()
    if kept.exists():
        known = kept.read_text("utf-8").strip()
        if all(Path(jar).exists() for jar in known.split(os.pathsep)):
            return known
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_suffix(f".{os.getpid()}")
    resolve = ["mvn", "-q", "-B", "-f", str(POM), CLASS_PATH_GOAL, f"-Dmdep.outputFile={fresh}"]
    ran = subprocess.run(resolve, capture_output=True, text=True, timeout=MAVEN_S_MAX, check=False)
    if ran.returncode or not fresh.exists():
        raise JavaError(
            f"Maven could not resolve {POM.name}: {(ran.stdout + ran.stderr)[-LAST_WORDS_BYTES:]}"
        )
    fresh.replace(kept)
    return kept.read_text("utf-8").strip()


def java_command(main_class: str, *arguments: str, jvm: tuple[str, ...] = QUICK_JVM) -> list[str]:
    """The command that runs a class of Kafka's; it logs errors only, to standard error."""
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx256m", logging, *jvm, "-cp", class_path(), main_class, *arguments]


class ApacheKafka:
    """Running brokers. Clients connect to `bootstrap`; node ids count from 1."""

    def __init__(
        self,
        work_dir: Path,
        nodes: int,
        settings: Mapping[str, str],
        heap_mb: int,
        listeners: Mapping[str, str],
    ) -> None:
        self.work_dir = work_dir
        self.heap_mb = heap_mb
        ports = _free_ports(2 * nodes + len(listeners))
        self._ports, self._controller_ports = ports[:nodes], ports[nodes : 2 * nodes]
        self._listeners = listeners
        self.listener_ports = dict(zip(listeners, ports[2 * nodes :], strict=True))
        """Ports of node 1's further listeners, by name."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bootstrap = ",".join(f"{LOOPBACK}:{port}" for port in self._ports)
        for position in range(nodes):
            self._write_config(position, settings)

    def __enter__(self) -> ApacheKafka:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(LOOPBACK, port) for port in self._ports]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def data_dir(self, node_id: int = 1) -> Path:
        return self.work_dir / f"data-{node_id}"

    def log_file(self, node_id: int = 1) -> Path:
        return self.work_dir / f"node-{node_id}.log"

    def start(self) -> None:
        """Format and start the brokers, and wait until they are ready. Raises JavaError."""
        self._format()
        for position in range(len(self._ports)):
            self._spawn(position)
        self._await_ready(time.monotonic() + START_S_MAX)

    def stop(self) -> None:
        """Ask every broker to stop; one that does not in time is killed."""
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_S_MAX
        for process in running:
            try:
                process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        atexit.unregister(self.kill)

    def kill(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    # ---- one node ----

    def _config_file(self, position: int) -> Path:
        return self.work_dir / f"server-{position + 1}.properties"

    def _write_config(self, position: int, settings: Mapping[str, str]) -> None:
        nodes = len(self._ports)
        voters = [f"{number + 1}@{LOOPBACK}:{port}" for number, port in enumerate(self._controller_ports)]
        client, controller = self._ports[position], self._controller_ports[position]
        more = self.listener_ports if position == 0 else {}
        clients = ",".join(
            f"{name}://{LOOPBACK}:{port}" for name, port in {"PLAINTEXT": client, **more}.items()
        )
        protocols = "".join(f",{name}:{self._listeners[name]}" for name in more)
        config = {
            "process.roles": "broker,controller",
            "node.id": position + 1,
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{clients},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.data_dir(position + 1),
            "offsets.topic.replication.factor": nodes,
            "default.replication.factor": nodes,
            "transaction.state.log.replication.factor": nodes,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": nodes,
            "share.coordinator.state.topic.min.isr": 1,
            **settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in config.items())
        self._config_file(position).write_text(text, "utf-8")

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A", 1)
        for position in range(len(self._ports)):
            config = str(self._config_file(position))
            command = java_command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config)
            ran = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_S_MAX, check=False)
            if ran.returncode:
                raise JavaError(f"formatting failed: {(ran.stdout + ran.stderr)[-LAST_WORDS_BYTES:]}")

    def _spawn(self, position: int) -> None:
        heap = (f"-Xmx{self.heap_mb}m", f"-Xms{self.heap_mb}m")
        logging = (
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        )
        main = ("-cp", class_path(), "kafka.Kafka", str(self._config_file(position)))
        with self.log_file(position + 1).open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    ["java", *heap, *BROKER_JVM, *logging, *main],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the launching process, which then stops it
                )
            )

    def _await_ready(self, deadline_s: float) -> None:
        for position, process in enumerate(self._processes):
            while not self._knows_all(position):
                if process.poll() is not None:
                    raise JavaError(f"broker {position + 1} ended: {self._last_words(position)}")
                if time.monotonic() > deadline_s:
                    raise JavaError(f"broker {position + 1} is not ready: {self._last_words(position)}")
                time.sleep(PAUSE_S)

    def _knows_all(self, position: int) -> bool:
        try:
            connection = ClientConnection(*self.addresses[position], time.monotonic() + ASK_S)
        except (ConnectionLost, VersionMissing):
            return False
        try:
            answer = connection.call(
                ApiKey.METADATA,
                MetadataRequest(topics=[]),
                time.monotonic() + ASK_S,
                version_max=METADATA_VERSION,
            )
        except (ConnectionLost, VersionMissing):
            return False
        finally:
            connection.close()
        return len(answer.brokers) == len(self._ports)

    def _last_words(self, position: int) -> str:
        return self.log_file(position + 1).read_text("utf-8", errors="replace")[-LAST_WORDS_BYTES:]


def launch_kafka(
    work_dir: Path,
    *,
    nodes: int = 1,
    settings: Mapping[str, str] | None = None,
    heap_mb: int = 1_024,
    listeners: Mapping[str, str] | None = None,
) -> ApacheKafka:
    """Brokers ready to serve, with fresh data in `work_dir`; raises JavaError, leaving nothing running.

    Node 1 gets further `listeners`: their security protocols by name.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    kafka = ApacheKafka(work_dir, nodes, settings or {}, heap_mb, listeners or {})
    atexit.register(kafka.kill)
    try:
        kafka.start()
    except BaseException:
        kafka.stop()
        raise
    return kafka


@contextlib.contextmanager
def _probes(count: int) -> Iterator[list[socket.socket]]:
    opened = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    try:
        yield opened
    finally:
        for probe in opened:
            probe.close()


def _free_ports(count: int) -> list[int]:
    """Distinct free ports: all probes are open at the same time."""
    with _probes(count) as opened:
        return [probe.getsockname()[1] for probe in opened]


def _class_path_file() -> Path:
    return CACHE / f"class-path-{zlib.crc32(POM.read_bytes()):08x}"
