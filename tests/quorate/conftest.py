"""Fixtures: scripted nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.quorate.standins import HttpNode, ScriptedNode, metadata
from wire.apis import API_VERSIONS, ApiKey, served_apis
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.find_coordinator import FindCoordinatorResponse


@pytest.fixture
def start_node() -> Iterator[Callable[[], ScriptedNode]]:
    nodes: list[ScriptedNode] = []

    def start() -> ScriptedNode:
        node = ScriptedNode()
        nodes.append(node)
        node.answer(
            ApiKey.API_VERSIONS,
            ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in API_VERSIONS.items()
                    if key in served_apis(classic=True)
                ]
            ),
        )
        found = FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=node.port)
        node.answer(ApiKey.FIND_COORDINATOR, found)
        node.answer(ApiKey.METADATA, metadata(node))
        return node

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def node(start_node: Callable[[], ScriptedNode]) -> ScriptedNode:
    return start_node()


@pytest.fixture
def start() -> Iterator[Callable[[], HttpNode]]:
    nodes: list[HttpNode] = []

    def start_one() -> HttpNode:
        nodes.append(HttpNode())
        return nodes[-1]

    yield start_one
    for node in nodes:
        node.close()
