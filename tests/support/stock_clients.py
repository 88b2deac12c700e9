"""Stock clients in other languages than Python: why one cannot run here, and the programs that run it.

Each has a consumer and a producer with the options and the lines of Kafka's VerifiableConsumer and
VerifiableProducer (`tests.support.verifiable`), and an exactly-once loop with the options of its
TransactionalMessageCopier; kcat has no loop. Go's program is built, and KafkaJS is installed, once, in
`build` (`make clean` removes it), named by the checksum of its source.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.apache import java_command, java_is_missing
from tests.support.verifiable import VerifiableConsumer, VerifiableProcess, VerifiableProducer

REPOSITORY: Final = Path(__file__).parents[2]
CACHE: Final = REPOSITORY / "build" / "clients"
GO: Final = REPOSITORY / "tests" / "languages" / "franz_go"
JAVASCRIPT: Final = REPOSITORY / "tests" / "languages" / "kafkajs"
KCAT: Final = REPOSITORY / "tests" / "languages" / "kcat"
JAVA: Final = REPOSITORY / "tests" / "languages" / "java" / "ConsumerProtocol.java"
FETCHED_S_MAX: Final = 300.0
"""Seconds to fetch a client from its registry, and to build it."""

SESSION_MS: Final = 6_000
"""Session timeout of classic members. They heartbeat ten times as often, to learn of rebalances soon."""


@dataclass(frozen=True)
class StockClient:
    """One client with one protocol."""

    missing: Callable[[], str | None]
    """The reason why it cannot run here, in one line; None if it can."""

    program: Callable[[str, str], tuple[list[str], dict[str, str]]]
    """The command and its environment, given `consume`, `produce`, `copy` or `wait`, and a client id."""

    waits_in_callback: bool = False
    """Whether its program has a role `wait`: to consume, and to wait for a line in the callback for revoked
    partitions, after the line `partitions_revoking`."""

    def consumer(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        *options: str,
        client_id: str = "consumer",
        role: str = "consume",
    ) -> VerifiableConsumer:
        command, env = self.program(role, client_id)
        names = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group)
        return VerifiableConsumer([*command, *names, *options], env)

    def producer(
        self, bootstrap: str, topic: str, *options: str, client_id: str = "producer"
    ) -> VerifiableProducer:
        command, env = self.program("produce", client_id)
        return VerifiableProducer(
            [*command, "--bootstrap-server", bootstrap, "--topic", topic, *options], env
        )

    def copier(self, bootstrap: str, source: str, target: str, group: str) -> VerifiableProcess:
        """Start a loop that copies messages from the one partition of a topic to another topic.

        It writes the copies and its offsets in one transaction, and aborts one in three at random.
        """
        command, env = self.program("copy", "copier")
        names = ("--input-topic", source, "--output-topic", target, "--transactional-id", f"{group}-copier")
        where = ("--bootstrap-server", bootstrap, "--group-id", group)
        if command[0] == "java":
            where = ("--broker-list", bootstrap, "--consumer-group", group, "--input-partition", "0")
        some = ("--transaction-size", "10", "--enable-random-aborts")
        return VerifiableProcess([*command, *where, *names, *some], env)


def _go_is_missing() -> str | None:
    return None if shutil.which("go") else "no Go: install Go 1.26 or newer (go)"


def _node_is_missing() -> str | None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"no {program}: install Node.js 20 or newer with npm"
    return None


def _java(protocol: str) -> Callable[[str, str], tuple[list[str], dict[str, str]]]:
    def program(role: str, client_id: str) -> tuple[list[str], dict[str, str]]:
        if role == "wait" or (role == "copy" and protocol == "consumer"):
            return java_command(str(JAVA), role, "--client-id", client_id), {}
        if role == "copy":
            return java_command("org.apache.kafka.tools.TransactionalMessageCopier"), {}
        config = {"client.id": client_id}
        if role == "produce":
            return java_command("org.apache.kafka.tools.VerifiableProducer", *_config(config)), {}
        options = ["--verbose", "--group-protocol", protocol]
        if protocol == "classic":
            config["heartbeat.interval.ms"] = str(SESSION_MS // 10)
            options += ["--session-timeout", str(SESSION_MS)]
        return java_command("org.apache.kafka.tools.VerifiableConsumer", *options, *_config(config)), {}

    return program


def _config(config: dict[str, str]) -> tuple[str, str]:
    """Write a file of client properties, once for all processes that have the same."""
    text = "".join(f"{name}={value}\n" for name, value in config.items())
    file = CACHE / f"{zlib.crc32(text.encode()):08x}.properties"
    CACHE.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return "--command-config", str(file)


def _franz_go(role: str, client_id: str) -> tuple[list[str], dict[str, str]]:
    built = _once("franz-go", GO, _build_go) / "client"
    return [str(built), role, "--client-id", client_id, "--session-timeout", str(SESSION_MS)], {}


def _build_go(into: Path) -> None:
    _fetch(["go", "build", "-o", str(into / "client"), "."], GO)


def _kafkajs(role: str, client_id: str) -> tuple[list[str], dict[str, str]]:
    modules = _once("kafkajs", JAVASCRIPT, _install_kafkajs) / "node_modules"
    options = ["--client-id", client_id, "--session-timeout", str(SESSION_MS)]
    return ["node", str(JAVASCRIPT / "client.js"), role, *options], {"NODE_PATH": str(modules)}


def _install_kafkajs(into: Path) -> None:
    shutil.copy(JAVASCRIPT / "package.json", into)
    _fetch(["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"], into)


def _kcat_is_missing() -> str | None:
    if shutil.which("kcat") is None:
        return "no kcat: install it (the package kcat of Debian and others)"
    return None if shutil.which("setpriv") else "no setpriv: install util-linux"


def _kcat(role: str, client_id: str) -> tuple[list[str], dict[str, str]]:
    options = ["--client-id", client_id, "--session-timeout", str(SESSION_MS)]
    return [sys.executable, str(KCAT / "client.py"), role, *options], {}


def _once(name: str, source: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` filled for this source, now or in an earlier run."""
    kept = CACHE / f"{name}-{_checksum(source.iterdir()):08x}"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as fresh:
            made = Path(fresh) / "made"
            made.mkdir()
            make(made)
            if not kept.exists():
                made.rename(kept)
    return kept


def _checksum(files: Iterable[Path]) -> int:
    return zlib.crc32(b"".join(path.name.encode() + path.read_bytes() for path in sorted(files)))


def _fetch(command: list[str], folder: Path) -> None:
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=FETCHED_S_MAX, check=False
    )
    assert ran.returncode == 0, f"{' '.join(command)}: {(ran.stdout + ran.stderr)[-2_000:]}"


CLIENTS: Final = {
    "java-classic": StockClient(java_is_missing, _java("classic")),
    "java-consumer": StockClient(java_is_missing, _java("consumer"), waits_in_callback=True),
    "franz-go": StockClient(_go_is_missing, _franz_go),
    "kafkajs": StockClient(_node_is_missing, _kafkajs),
    "kcat": StockClient(_kcat_is_missing, _kcat),
}
"""Every client by the name that the tests' ids have."""
