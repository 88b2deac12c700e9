"""The container and three of them: tried as processes here, and built and run where docker is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.main import EXIT_OK, STOP_TIMEOUT_S
from cluster.settings import Settings, load_settings
from quorate.client import Client
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", "")
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
NODES = {1: "node-1", 2: "node-2", 3: "node-3"}
HOME = "/var/lib/quorate"
HTTP_PORT, KAFKA_PORT = 8092, 9092
BUILD_WITHIN_S = 900
EXPOSED = re.compile(r"127\.0\.0\.1:(\d+):(\d+)")


def words_after(instruction: str) -> list[str]:
    """Return the JSON words of an instruction's last occurrence."""
    return json.loads(re.findall(rf"^{instruction} .*?(\[.*\])$", CONTAINERFILE, re.MULTILINE)[-1])


def environment(service: str) -> dict[str, str]:
    """Return the settings of a service's container: the image's, then its own, without ADVERTISED_HOST."""
    of_image = dict(re.findall(r"(QUORATE_\w+)=(\S+)", CONTAINERFILE))
    own = COMPOSE["services"][service]["environment"]
    return {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in {**of_image, **own}.items()}


def settings_of(service: str) -> Settings:
    return load_settings(None, environment(service))


def test_the_context_has_what_the_build_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert lines.index("*") < min(index for index, line in enumerate(lines) if line.startswith("!"))
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = {name.removesuffix(".*") for name in tool["setuptools"]["packages"]["find"]["include"]}
    assert kept == packages | {
        "pyproject.toml",
        "constraints.txt",
        "README.md",
        "docs/*.md",
        "docs/proofs/*.md",
    }
    assert all(any(ROOT.glob(name)) for name in kept)


def test_the_image_has_only_the_product_pinned_and_no_root() -> None:
    assert re.findall(r"install .*", CONTAINERFILE) == ["install --no-cache-dir -c constraints.txt ."]
    run_stage = CONTAINERFILE.split("\nFROM ")[-1]
    assert "pip" not in run_stage
    user = re.findall(r"^USER (\d+)$", run_stage, re.MULTILINE)[-1]
    assert int(user) > 0
    assert f"--uid {user} --home-dir {HOME} " in run_stage


@pytest.mark.parametrize("node_id", NODES)
def test_a_service_has_the_settings_of_its_node(node_id: int) -> None:
    settings = settings_of(NODES[node_id])
    peers = settings.peer_settings()
    assert peers is not None
    assert [(node.node_id, node.host) for node in peers.nodes] == list(NODES.items())
    assert settings.node_id == node_id
    assert settings.data_dir == f"{HOME}/node-{node_id}"
    ports = [EXPOSED.fullmatch(text) for text in COMPOSE["services"][NODES[node_id]]["ports"]]
    assert {int(port[2]): int(port[1]) for port in ports if port} == {
        settings.kafka_port: settings.kafka_advertised_port,
        settings.http_port: settings.http_advertised_port,
    }
    assert (settings.kafka_advertised_host, settings.http_advertised_host) == ("127.0.0.1", "127.0.0.1")


def test_services_differ_only_in_their_nodes_and_setup_is_not_part_of_up() -> None:
    services = dict(COMPOSE["services"])
    setup = services.pop("setup")
    assert setup["profiles"] == ["setup"]
    assert setup["restart"] == "no"
    shared = [
        {key: value for key, value in one.items() if key not in ("environment", "ports")}
        for one in services.values()
    ]
    assert shared[1:] == shared[:-1]
    assert shared[0]["volumes"] == [f"data:{HOME}"]
    assert shared[0]["read_only"]
    assert int(shared[0]["stop_grace_period"].removesuffix("s")) > 2 * STOP_TIMEOUT_S
    published = [port for one in services.values() for port in one["ports"]]
    assert len({EXPOSED.fullmatch(port)[1] for port in published}) == 2 * len(NODES)  # type: ignore[index]


class Composed:
    """The services as processes here: each container's address is one of loopback, its volume a folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        number = os.getpid() % 65_000
        self._net = f"127.{64 + number // 256 % 128}.{number % 256}"  # no other run uses it
        bins = home.parent / "bin"
        bins.mkdir()
        (bins / "quorate").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m quorate "$@"\n')
        (bins / "quorate").chmod(0o755)
        (bins / "python").symlink_to(sys.executable)
        self._env = {**os.environ, "PATH": f"{bins}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def address(self, node_id: int) -> str:
        return f"{self._net}.{node_id}"

    def setup(self) -> subprocess.CompletedProcess[str]:
        service = COMPOSE["services"]["setup"]
        return self.run(*(word.replace("$$", "$") for word in [*service["entrypoint"], *service["command"]]))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as in a container with the volume."""
        command = [word.replace(HOME, str(self._home)) for word in words]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60, check=False)

    def start(self, node_id: int) -> None:
        settings = environment(NODES[node_id])
        for name, value in settings.items():
            text = value.replace(HOME, str(self._home)).replace("0.0.0.0", self.address(node_id))
            text = re.sub(r"@node-(\d)", lambda found: f"@{self.address(int(found[1]))}", text)
            settings[name] = text.replace("127.0.0.1", self.address(node_id))
            if name.endswith("ADVERTISED_PORT"):  # nothing publishes the ports elsewhere here
                settings[name] = "0"
        with (self._home / f"log-{node_id}").open("wb") as log:
            self.processes[node_id] = subprocess.Popen(
                [*words_after("ENTRYPOINT"), *words_after("CMD")],
                env={**self._env, **settings},
                stderr=log,
                stdout=subprocess.DEVNULL,
            )

    def is_healthy(self, node_id: int) -> bool:
        """Run the image's health check as the container's runtime does."""
        health = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[0]
        command = [word.replace("127.0.0.1", self.address(node_id)) for word in json.loads(health)]
        ran = subprocess.run(command, env=self._env, capture_output=True, timeout=30, check=False)
        return ran.returncode == 0

    def log(self, node_id: int) -> str:
        return (self._home / f"log-{node_id}").read_text()


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    home = tmp_path / "volume"
    home.mkdir()
    started = Composed(home)
    yield started
    for process in started.processes.values():
        process.kill()
        process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="one machine has many loopback addresses on Linux only")
def test_three_nodes_as_composed_form_a_cluster_and_stop_cleanly(composed: Composed) -> None:
    setup = composed.setup()
    assert setup.returncode == 0, setup.stderr
    assert composed.setup().returncode != 0  # never over what is there
    for node_id in NODES:
        composed.start(node_id)
    for node_id in NODES:
        wait_for(lambda node_id=node_id: composed.is_healthy(node_id), lambda: composed.log(1), 30)
    bootstrap = ",".join(f"{composed.address(node_id)}:{KAFKA_PORT}" for node_id in NODES)
    with Client(bootstrap) as client:
        client.create_topic("orders", 3)
    with urllib.request.urlopen(f"http://{composed.address(1)}:{HTTP_PORT}/v1/cluster", timeout=5) as answer:
        assert json.load(answer)["cluster_id"] == "compose"
    for process in composed.processes.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(STOP_TIMEOUT_S * 2) for process in composed.processes.values()] == [EXIT_OK] * 3
    for node_id in NODES:
        events = [json.loads(line) for line in composed.log(node_id).splitlines()]
        assert events[-1]["message"] == "node stopped"
    assert not composed.is_healthy(1)
    assert (
        "node 1" in composed.run(*words_after("ENTRYPOINT"), "log", "terms", HOME).stdout
    )  # as one folder of a cluster


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = ([docker, "info"], [docker, "compose", "version"])
    ran = [subprocess.run(words, capture_output=True, timeout=30, check=False) for words in asked]
    return all(one.returncode == 0 for one in ran)


@pytest.fixture
def compose() -> Iterator[Any]:
    """Run docker compose on the file; in the end everything that it made is removed, but for the image."""
    if not _docker_runs():
        pytest.skip("no docker with a daemon and compose on this machine")

    def run(*words: str) -> str:
        command = ["docker", "compose", "-p", f"quorate-test-{os.getpid()}", "-f", str(COMPOSE_FILE), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_WITHIN_S, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    yield run
    run("down", "--volumes", "--timeout", "30")


@pytest.mark.deploy
@pytest.mark.timeout(2 * BUILD_WITHIN_S)
def test_three_containers_are_built_run_and_stop_cleanly(compose: Any) -> None:
    compose("run", "--rm", "--build", "setup")
    compose("up", "--detach", "--wait")  # until the health checks hold
    with Client("127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094") as client:
        client.create_topic("orders", 3)
    assert compose("exec", "node-1", "id", "--user").strip() != "0"
    compose("stop")
    stopped = [json.loads(line) for line in compose("ps", "--all", "--format", "json").splitlines()]
    assert [one["ExitCode"] for one in stopped] == [EXIT_OK] * len(NODES)
