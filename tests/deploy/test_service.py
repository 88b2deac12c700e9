"""The systemd unit and its configuration file."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.main import EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE, STOP_TIMEOUT_S
from cluster.settings import load_settings
from quorate.errors import ExitCode

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "quorate.service"
INSTALLED = "/opt/quorate/bin/quorate"
EXPOSURE_MAX = 25
"""Tenths: systemd calls a service below 2.5 of 10 hardly exposed."""

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]  # case counts
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_it_restarts_after_a_crash_and_not_after_what_only_a_person_can_mend(
    service: configparser.SectionProxy,
) -> None:
    assert service["Restart"] == "on-failure"
    kept = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert kept == {EXIT_USAGE, EXIT_UNREADABLE, ExitCode.INSTALLATION}
    assert EXIT_OK == 0  # what systemd takes for success


def test_a_stop_gets_more_time_than_a_node_takes(service: configparser.SectionProxy) -> None:
    assert float(service["TimeoutStopSec"].removesuffix("s")) > 2 * STOP_TIMEOUT_S


def test_it_runs_a_command_that_there_is_on_the_configuration_beside_it(
    service: configparser.SectionProxy, tmp_path: Path
) -> None:
    """The same words, but for a setting that stops the node before it starts: exit code 2, its own line."""
    program, *words = service["ExecStart"].split()
    assert program == INSTALLED
    config = tmp_path / "quorate.toml"
    config.write_text((DEPLOY / "quorate.toml").read_text().replace("id = 2", "id = 4"))
    words = [str(config) if word == "/etc/quorate/quorate.toml" else word for word in words]
    command = [sys.executable, "-P", "-m", "quorate", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == EXIT_USAGE
    assert "cluster.nodes" in ran.stderr


def test_its_directory_is_the_one_that_the_configuration_names(service: configparser.SectionProxy) -> None:
    settings = load_settings(DEPLOY / "quorate.toml", {})
    assert Path(settings.data_dir).parent == Path("/var/lib", service["StateDirectory"])
    assert settings.peer_settings() is not None
    for file in (settings.cluster_secret_file, settings.peer_tls_key_file):
        assert Path(file).parent == Path("/etc/quorate")
    assert int(service["LimitNOFILE"]) > 4 * settings.max_connections


@pytest.mark.deploy
@needs_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(INSTALLED, sys.executable))
    ran = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert UNIT.name not in ran.stderr


@pytest.mark.deploy
@needs_systemd
def test_systemd_finds_the_service_hardly_exposed() -> None:
    ran = subprocess.run(
        [str(ANALYZE), "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
