"""`/v1/faults`: setting, listing and clearing faults over HTTP, and who may."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.faults.table import FAULTS_MAX
from cluster.http.routes import ROUTES
from tests.listeners.http_rig import HttpRig, http_rig

STALE = {
    "action": "error",
    "error": "STALE_MEMBER_EPOCH",
    "api": "OffsetCommit",
    "group": "billing",
    "times": 2,
}


async def delete(rig: HttpRig, path: str, **given: Any) -> tuple[int, Any]:
    async with rig.session.delete(rig.url + path, **given) as answer:
        return answer.status, await answer.json()


async def test_a_fault_is_set_listed_and_cleared(caplog: pytest.LogCaptureFixture) -> None:
    async with http_rig(faults_enable=True) as rig:
        assert await rig.get("/v1/faults") == (200, {"enabled": True, "next_id": 1, "faults": []})
        status, fault = await rig.post("/v1/faults", STALE)
        assert status == 200
        assert fault == {
            "id": 1,
            "action": "error",
            "api": "OffsetCommit",
            "group": "billing",
            "member": None,
            "client_id": None,
            "connection": None,
            "error": "STALE_MEMBER_EPOCH",
            "delay_ms": 0,
            "throttle_ms": 0,
            "after": 0,
            "times": 2,
            "rate": 1.0,
            "seed": 0,
            "for_ms": None,
            "words": "answer STALE_MEMBER_EPOCH",
            "matched": 0,
            "applied": 0,
            "has_ended": False,
            "left_ms": None,
        }
        assert (await rig.post("/v1/faults", {"action": "drop", "id": 9, "rate": 0.5}))[1]["id"] == 9
        status, shown = await rig.get("/v1/faults")
        assert ([one["id"] for one in shown["faults"]], shown["next_id"]) == ([1, 9], 10)
        assert await delete(rig, "/v1/faults/1") == (200, {"cleared": 1})
        status, refused = await delete(rig, "/v1/faults/1")
        assert (status, refused["error"]) == (404, "NO_SUCH_FAULT")
        assert await delete(rig, "/v1/faults") == (200, {"cleared": 1})
        assert not rig.kafka.context.faults.is_set
        assert "1 fault cleared, as requested by" in caplog.text


async def test_a_node_is_not_breakable_unless_its_settings_say_so() -> None:
    async with http_rig() as rig:
        assert (await rig.get("/v1/faults"))[1]["enabled"] is False
        status, refused = await rig.post("/v1/faults", STALE)
        assert (status, refused["error"]) == (403, "FAULTS_DISABLED")
        assert "faults.enable" in refused["hint"]
        assert not rig.kafka.context.faults.is_set
        status, refused = await rig.post("/v1/clock", {"advance_ms": 45_000})
        assert (status, refused["error"]) == (403, "FAULTS_DISABLED")
        assert rig.node.changes == []


async def test_the_clock_is_advanced() -> None:
    async with http_rig(faults_enable=True) as rig:
        assert await rig.post("/v1/clock", {"advance_ms": 45_000}) == (200, {"advanced_ms": 45_000})
        assert rig.node.changes == [("advance", 45_000)]
        assert (await rig.post("/v1/clock", {"advance_ms": -1}))[0] == 400


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ({}, "BAD_FAULT", "the fault's action is missing"),
        ({"action": "explode"}, "BAD_PARAMETER", "action must be one of delay, drop"),
        ({"action": "error"}, "BAD_FAULT", "the fault error needs error"),
        ({"action": "error", "error": "STALE_EPOCH"}, "BAD_FAULT", "Kafka has no error 'STALE_EPOCH'"),
        ({"action": "error", "error": 16}, "BAD_PARAMETER", "error must be a text"),
        ({"action": "drop", "rate": "often"}, "BAD_PARAMETER", "rate must be a number, not 'often'"),
        ({"action": "drop", "rate": True}, "BAD_PARAMETER", "rate must be a number"),
        ({"action": "drop", "rate": float("nan")}, "BAD_FAULT", "rate must be above 0"),
        ({"action": "drop", "times": 0}, "BAD_PARAMETER", "times must be between 1"),
        ({"action": "drop", "delay_ms": 3_600_001}, "BAD_PARAMETER", "delay_ms must be between 0"),
        ({"action": "drop", "grop": "g"}, "UNKNOWN_FIELD", "unknown field 'grop'"),
    ],
)
async def test_a_wrong_fault_is_refused_with_advice(body: dict[str, Any], error: str, said: str) -> None:
    async with http_rig(faults_enable=True) as rig:
        status, refused = await rig.post("/v1/faults", body)
        assert (status, refused["error"]) == (400, error)
        assert said in refused["message"]
        assert refused["hint"]
        assert not rig.kafka.context.faults.is_set


async def test_a_used_id_and_a_full_table_are_conflicts() -> None:
    async with http_rig(faults_enable=True) as rig:
        for _ in range(FAULTS_MAX):
            assert (await rig.post("/v1/faults", STALE))[0] == 200
        for more in ({}, {"id": 1}):
            status, refused = await rig.post("/v1/faults", STALE | more)
            assert (status, refused["error"]) == (409, "NOT_ADDED")


async def test_another_sites_page_neither_sets_nor_clears_faults() -> None:
    async with http_rig(faults_enable=True) as rig:
        foreign = {"Origin": "http://evil.example"}
        status, refused = await rig.post("/v1/faults", json=STALE, headers=foreign)
        assert (status, refused["error"]) == (403, "FOREIGN_ORIGIN")
        await rig.post("/v1/faults", STALE)
        for path in ("/v1/faults", "/v1/faults/1"):
            status, refused = await delete(rig, path, headers=foreign)
            assert (status, refused["error"]) == (403, "FOREIGN_ORIGIN")
        status, refused = await delete(rig, "/v1/faults", headers={"Host": "evil.example"})
        assert (status, refused["error"]) == (403, "FOREIGN_HOST")
        assert rig.kafka.context.faults.is_set
        assert await delete(rig, "/v1/faults", headers={"Origin": rig.url}) == (200, {"cleared": 1})


async def test_the_openapi_document_has_every_field_of_a_fault() -> None:
    async with http_rig(faults_enable=True) as rig:
        _, document = await rig.get("/v1/openapi.json")
        operations = document["paths"]["/v1/faults"]
        assert sorted(operations) == ["delete", "get", "post"]
        body = operations["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        _, fault = await rig.post("/v1/faults", STALE)
        shown = {"words", "matched", "applied", "has_ended", "left_ms"}
        assert set(body) == set(fault) - shown
        assert body["rate"]["type"] == "number"
        answer = next(route for route in ROUTES if route.name == "add_fault").answer
        assert answer is not None
        assert set(answer["properties"]) == set(fault)
