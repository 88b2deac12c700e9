"""docs/testing-clients.md: the table of clients and situations says what clients in other languages do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.launching.launcher import NodeProcess, launch_node
from tests.clients.situations import outcomes
from tests.clients.stage import SETTINGS
from tests.clients.test_situations import columns
from tests.support.stock_clients import CLIENTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    started = launch_node(tmp_path_factory.mktemp("situations") / "node", settings=SETTINGS)
    yield started
    assert started.stop() == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_does_what_the_page_says(client: str, node: NodeProcess) -> None:
    if reason := CLIENTS[client].missing():
        pytest.skip(reason)
    assert outcomes(node, client, at_once=2) == columns()[client]
