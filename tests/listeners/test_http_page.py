"""The page at `/` as an HTTP answer, and which pages may read the answers of a node."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.http.page import PAGE, page_origins
from tests.listeners.http_rig import http_rig
from tests.support.listener_rig import INFO, PEER

PAGE_BYTES_MAX = 70_000
OTHER = dataclasses.replace(PEER, http_host="10.0.0.9", http_port=8092)
PEER_ORIGIN = "http://10.0.0.9:8092"


async def test_the_page_comes_whole_with_a_policy_that_allows_its_own_script_only() -> None:
    async with http_rig() as rig:
        rig.node.nodes = (INFO,)  # the other one has just ended
        rig.node.known_nodes = (INFO, OTHER)
        async with rig.session.get(rig.url + "/") as answer:
            text, headers = await answer.text(), answer.headers
    assert text == PAGE
    assert len(text.encode()) <= PAGE_BYTES_MAX
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    for tag in ("script", "style"):
        inline = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert len(inline) == 1
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {"'self'", PEER_ORIGIN} <= set(policy["connect-src"].split())
    assert "*" not in headers["Content-Security-Policy"]


async def test_the_page_comes_with_an_unknown_parameter_too() -> None:
    async with http_rig() as rig, rig.session.get(rig.url + "/?x&from=mail") as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")


async def test_head_has_the_headers_of_the_page_and_no_body() -> None:
    async with http_rig() as rig, rig.session.head(rig.url + "/") as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) == len(PAGE.encode())
        assert await answer.read() == b""


def test_the_page_names_no_other_address_and_builds_no_markup_from_texts() -> None:
    assert re.findall(r"""(?:src|href|url\()=?["']?(?:https?:)?//""", PAGE) == []
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
        assert unsafe not in PAGE


async def test_a_page_of_a_foreign_name_is_refused() -> None:
    headers = {"Host": "evil.example"}
    async with http_rig() as rig, rig.session.get(rig.url + "/", headers=headers) as answer:
        assert answer.status == 403


@pytest.mark.parametrize("path", ["/v1/cluster", "/v1/groups", "/v1/groups/unknown", "/v1/shards/0/log"])
async def test_only_pages_of_the_clusters_nodes_may_read_an_answer(path: str) -> None:
    async with http_rig() as rig:
        rig.node.nodes = (INFO,)  # the other one has just ended
        rig.node.known_nodes = (INFO, OTHER)
        for origin, allowed in {
            PEER_ORIGIN: PEER_ORIGIN,
            "http://evil.example": None,
            "null": None,
            PEER_ORIGIN + "0": None,
            PEER_ORIGIN.replace("http:", "https:"): None,
        }.items():
            async with rig.session.get(rig.url + path, headers={"Origin": origin}) as answer:
                assert answer.headers.get("Access-Control-Allow-Origin") == allowed, origin
                assert answer.headers["Vary"] == "Origin"
                assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_a_page_of_another_node_may_not_change_anything() -> None:
    async with http_rig() as rig:
        rig.node.nodes = (INFO,)  # the other one has just ended
        rig.node.known_nodes = (INFO, OTHER)
        headers = {"Origin": PEER_ORIGIN}
        async with rig.session.post(rig.url + "/v1/shards/0/transfer", json={}, headers=headers) as answer:
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
        async with rig.session.options(rig.url + "/v1/shards/0/transfer", headers=headers) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
        assert rig.node.changes == []


@asynccontextmanager
async def launcher(directory: Path, answer: dict[str, Any]) -> AsyncIterator[list[bytes]]:
    """A launcher's socket, where every request gets the same answer; yields the requests."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async with await asyncio.start_unix_server(serve, directory / "supervisor"):
        yield asked


async def test_a_node_is_killed_by_its_launcher_at_the_request_of_its_own_page_only(tmp_path: Path) -> None:
    path = "/v1/nodes/2/kill"
    async with (
        launcher(tmp_path, {"said": "node 2 was killed", "node": {}}) as asked,
        http_rig(launcher_dir=str(tmp_path)) as rig,
    ):
        rig.node.known_nodes = (INFO, OTHER)
        assert (await rig.get("/v1/cluster"))[1]["launcher"] is True
        for origin in (PEER_ORIGIN, "http://evil.example", "null"):
            status, _ = await rig.post(path, json={}, headers={"Origin": origin})
            assert status == 403
        status, _ = await rig.post(path, data={"a": "form"})
        assert status == 415
        assert (await rig.status(path), await rig.status("/v1/nodes/2/restart")) == (405, 405)
        assert (await rig.post("/v1/nodes/2/stop"))[0] == 400
        assert asked == []
        own = await rig.post(path, json={}, headers={"Origin": rig.url})
        assert own == (200, {"said": "node 2 was killed", "node_id": 2})
        assert [json.loads(line) for line in asked] == [{"command": "kill", "node": 2}]


async def test_a_node_without_a_launcher_kills_and_restarts_nothing(tmp_path: Path) -> None:
    async with http_rig() as rig:
        assert (await rig.get("/v1/cluster"))[1]["launcher"] is False
        status, body = await rig.post("/v1/nodes/2/restart")
        assert (status, body["error"]) == (403, "NOT_LAUNCHED")
    async with http_rig(launcher_dir=str(tmp_path)) as rig:  # its `quorate up` has ended
        assert (await rig.post("/v1/nodes/2/restart"))[0] == 403
        refusal = {"error": "there is no node 2", "hint": "the cluster has nodes 1"}
        async with launcher(tmp_path, refusal):
            status, body = await rig.post("/v1/nodes/2/restart")
            assert (status, body["error"], body["message"]) == (409, "REFUSED", "there is no node 2")
        (tmp_path / "supervisor").touch()  # left behind by one that was killed
        status, body = await rig.post("/v1/nodes/2/restart")
        assert (status, body["error"]) == (503, "NO_LAUNCHER")


def test_a_loopback_node_is_also_localhost_and_a_name_that_is_no_host_is_left_out() -> None:
    local = dataclasses.replace(INFO, http_host="127.0.0.1", http_port=8092)
    assert page_origins([local]) == [
        "http://127.0.0.1:8092", "http://[::1]:8092", "http://localhost:8092"
    ]  # fmt: skip
    for host in ("evil; script-src *", "a b", "a\r\nX: y", "a/b", "a,b"):
        assert page_origins([dataclasses.replace(INFO, http_host=host, http_port=8092)]) == []
    assert page_origins([dataclasses.replace(INFO, http_host="far.example", http_port=0)]) == []
