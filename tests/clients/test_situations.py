"""docs/testing-clients.md: the table of clients and situations says what each of them does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.launching.launcher import NodeProcess, launch_node
from tests.clients.situations import SITUATIONS, outcomes
from tests.clients.stage import SETTINGS
from tests.support.kafka_python import FROM_KAFKA_PYTHON
from tests.support.python_clients import MEMBERS
from tests.support.stock_clients import CLIENTS

PAGE = Path(__file__).parents[2] / "docs" / "testing-clients.md"

pytestmark = [pytest.mark.filterwarnings(FROM_KAFKA_PYTHON), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def node_with_messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    started = launch_node(tmp_path_factory.mktemp("situations") / "node", settings=SETTINGS)
    yield started
    assert started.stop() == 0


def columns() -> dict[str, dict[str, str]]:
    """The page's cells by client and situation."""
    section = PAGE.read_text(encoding="utf-8").partition("## What clients do")[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    (_, *clients), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {client: {row[0]: row[number] for row in rows} for number, client in enumerate(clients, 1)}


@pytest.fixture(scope="module")
def found(node_with_messages: NodeProcess) -> Iterator[dict[str, Future[dict[str, str]]]]:
    """All clients and situations side by side: nearly all of their time is that of a client's own timers."""
    with ThreadPoolExecutor(len(MEMBERS)) as pool:
        yield {
            client: pool.submit(outcomes, node_with_messages, client, at_once=len(SITUATIONS))
            for client in MEMBERS
        }


@pytest.mark.parametrize("client", MEMBERS)
def test_a_client_does_what_the_page_says(client: str, found: dict[str, Future[dict[str, str]]]) -> None:
    assert found[client].result() == columns()[client]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_in_another_language_does_what_the_page_says(
    client: str, node_with_messages: NodeProcess
) -> None:
    if reason := CLIENTS[client].missing():
        pytest.skip(reason)
    assert outcomes(node_with_messages, client, at_once=2) == columns()[client]
