"""One address is enough: which one counts, and how the other is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.settings import load_settings
from quorate.addresses import DEFAULT_BOOTSTRAP, DEFAULT_URL, ClusterPlace, host_port, place_of_cluster
from quorate.client import HTTP_SETTINGS
from quorate.errors import CommandError
from quorate.http_client import urls_of
from tests.quorate.standins import HttpNode, ScriptedNode, metadata
from wire.apis import ApiKey
from wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


@pytest.mark.parametrize(
    ("typed", "variables", "counts"),
    [
        ((None, None), (None, None), (DEFAULT_BOOTSTRAP, DEFAULT_URL)),
        ((None, None), ("k:1", None), ("k:1", None)),
        ((None, None), (None, "h:1"), (None, "h:1")),
        ((None, None), ("k:1", "h:1"), ("k:1", "h:1")),
        ((None, None), ("", ""), (DEFAULT_BOOTSTRAP, DEFAULT_URL)),
        (("k:2", None), ("k:1", "h:1"), ("k:2", None)),
        ((None, "h:2"), ("k:1", "h:1"), (None, "h:2")),
        (("k:2", "h:2"), ("k:1", "h:1"), ("k:2", "h:2")),
    ],
)
def test_the_command_line_comes_before_variables_and_these_before_defaults(
    typed: tuple[str | None, str | None],
    variables: tuple[str | None, str | None],
    counts: tuple[str | None, str | None],
) -> None:
    names = ("QUORATE_BOOTSTRAP", "QUORATE_URL")
    environ = {name: one for name, one in zip(names, variables, strict=True) if one is not None}
    assert place_of_cluster(*typed, environ) == ClusterPlace(*counts)


def test_a_node_started_from_a_shell_with_these_variables_ignores_them() -> None:
    load_settings(None, {"QUORATE_BOOTSTRAP": "k:1", "QUORATE_URL": "h:1"})


def test_an_http_address_needs_no_scheme() -> None:
    assert urls_of("localhost:8092, https://b:1/,") == ["http://localhost:8092", "https://b:1"]
    assert urls_of("[::1]:8092") == ["http://[::1]:8092"]
    assert host_port("::1", 8092) == "[::1]:8092"


def test_http_leads_to_kafka(start: Callable[[], HttpNode]) -> None:
    http = start()
    nodes = [
        {"kafka": {"host": "10.0.0.1", "port": 9092}},
        {"kafka": {"host": "::1", "port": 9093}},
        {"kafka": None},
    ]
    http.script["/v1/cluster"] = [(200, {"nodes": nodes})]
    assert ClusterPlace(None, http.url.removeprefix("http://")).kafka(1.0) == "10.0.0.1:9092,[::1]:9093"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"nodes": [{"kafka": None}]}, "names no Kafka address"),
        *((strange, "does not respond like a Quorate node") for strange in ([], {}, {"nodes": [{}]})),
        ({"nodes": [{"kafka": {"port": 1}}]}, "does not respond like a Quorate node"),
        ({"nodes": [{"kafka": {"host": 1, "port": 1}}]}, "does not respond like a Quorate node"),
    ],
)
def test_an_answer_without_a_kafka_address_is_one_clear_line(
    document: object, says: str, start: Callable[[], HttpNode]
) -> None:
    http = start()
    http.script["/v1/cluster"] = [(200, document)]
    with pytest.raises(CommandError, match=says):
        ClusterPlace(None, http.url).kafka(1.0)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (("", "127.0.0.1", "0", "8092"), "http://127.0.0.1:8092"),
        (("web", "10.0.0.1", "80", "8092"), "http://web:80"),
        (("", "0.0.0.0", "0", "8092"), "http://127.0.0.1:8092"),
        (("", "::1", "0", "8092"), "http://[::1]:8092"),
        (("", "127.0.0.1", "0", "0"), None),
        ((), None),
    ],
)
def test_kafka_leads_to_http(settings: tuple[str, ...], url: str | None, node: ScriptedNode) -> None:
    rows = [
        DescribeConfigsResourceResult(name=name, value=value)
        for name, value in zip(HTTP_SETTINGS, settings, strict=False)
    ]
    described = DescribeConfigsResponse(results=[DescribeConfigsResult(configs=rows)])
    node.answer(ApiKey.METADATA, metadata(node))
    node.answer(ApiKey.DESCRIBE_CONFIGS, described)
    place = ClusterPlace(node.address, None)
    if url is not None:
        assert place.http(2.0) == url
    else:
        with pytest.raises(CommandError, match="names no HTTP address; give one with --url"):
            place.http(2.0)
