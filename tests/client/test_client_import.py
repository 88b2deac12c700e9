"""A user who wants only the client loads only the client, and soon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quorate

ROOMS_OF_SERVERS = {"coordinator", "raftlog", "cluster", "history", "quorate.spark"}
PACKAGES_OF_SERVERS = {"aiohttp", "pysyncobj", "re2", "uvloop", "prometheus_client", "typer"}
IMPORT_RATIO_MAX = 3.0
ATTEMPTS = 5


def loaded_by(program: str) -> set[str]:
    """Return the modules that a fresh process has loaded after these lines."""
    lines = f"import sys\n{program}\nprint('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-P", "-c", lines], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    "program",
    ["import client.aio.consumer", "from quorate import Consumer", "from quorate import SyncConsumer",
     "import quorate.confluent"],
)  # fmt: skip
def test_the_client_loads_no_server(program: str) -> None:
    loaded = loaded_by(program)
    assert "client.core.application" in loaded
    assert not loaded & (
        ROOMS_OF_SERVERS | PACKAGES_OF_SERVERS | {"cramjam", "crc32c", "scramp", "urllib.request"}
    )


def test_nothing_is_imported_for_a_program_that_does_not_trace() -> None:
    program = """
from quorate import Consumer, ConsumerRecord
consumer = Consumer(bootstrap_servers='127.0.0.1:1')
with consumer.processing(ConsumerRecord('orders', 0, 0, 0, 0, None, b'', (('traceparent', b''),), 0)) as span:
    assert span is None
"""
    assert not {name for name in loaded_by(program) if name.startswith("opentelemetry")}


def test_the_package_itself_loads_no_client() -> None:
    loaded = loaded_by("import quorate")
    assert not loaded & {"client", "asyncio", "wire"}


def test_the_client_is_imported_soon(tmp_path: Path) -> None:
    """Processor time with compiled modules, as installed, against that of asyncio and ssl, which it needs
    in any case; the best of some attempts counts."""
    measure = """
from time import process_time as s
a = s(); import asyncio, ssl; b = s(); import client.aio.consumer; print((s() - b) / (b - a))
"""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    ratios: list[float] = []
    while len(ratios) < ATTEMPTS and (len(ratios) < 2 or min(ratios) > IMPORT_RATIO_MAX):
        command = [sys.executable, "-P", "-c", measure]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        ratios.append(float(ran.stdout))
    assert min(ratios) <= IMPORT_RATIO_MAX


@pytest.mark.parametrize("name", quorate.__all__)
def test_each_name_of_the_package_is_there(name: str) -> None:
    assert getattr(quorate, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Konsumer'"):
        getattr(quorate, "Konsumer".strip())
