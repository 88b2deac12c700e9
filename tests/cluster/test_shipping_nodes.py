"""A node ships its segments in virtual time: beside its work, and again after a store was away."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.settings import Settings, SettingsError
from cluster.shipping import CHANGING_MS, LOOK_MS, RETRY_MS_MAX, Shipper
from raftlog.env import object_stores
from raftlog.storage import shipping
from raftlog.storage.shipping import sealed_segments, shipped_manifest
from tests.support.object_stores import MemoryStore
from tests.support.sim_node import GROUPS, SimNode, runtimes


class Jobs:
    """A host whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.timers: list[tuple[float, Any]] = []
        self.dones: list[Any] = []
        self.requests: list[Any] = []
        self.cancelled = 0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def call_later(self, delay_ms: float, fn: Any) -> Any:
        self.timers.append((delay_ms, fn))
        return self

    def spawn_job(self, module: str, request: Any, done: Any, *, low_priority: bool, deadline_ms: int) -> Any:
        assert module == shipping.__name__
        assert low_priority
        self.requests.append(request)
        self.dones.append(done)
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def pass_timer(self) -> float:
        delay_ms, fn = self.timers.pop()
        fn()
        return delay_ms


def _shipped(**other: Any) -> dict[str, Any]:
    return {"shipped": 1, "shipped_bytes": 10, "left": 0, "left_bytes": 0, "lost": 0, **other}


def test_jobs_follow_one_another_while_segments_are_left() -> None:
    host = Jobs()
    shipper = Shipper(host, "/data", "s3://bucket/a")
    shipper.start()
    assert host.pass_timer() == LOOK_MS
    host.dones.pop()(_shipped(left=3, left_bytes=30), None)
    assert host.pass_timer() == 0
    host.dones.pop()(_shipped(), None)
    assert host.timers[-1][0] == LOOK_MS
    status = shipper.status()
    assert (status["segments_shipped"], status["bytes_shipped"], status["segments_left"]) == (2, 20, 0)


def test_pauses_grow_while_the_store_is_away_and_its_return_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    host = Jobs()
    shipper = Shipper(host, "/data", "s3://bucket/a")
    shipper.start()
    pauses = []
    for _ in range(8):
        pauses.append(host.pass_timer())
        host.dones.pop()({"failed": "s3://bucket/a: the store is overloaded"}, None)
    assert pauses == [LOOK_MS, *(min(LOOK_MS << n, RETRY_MS_MAX) for n in range(7))]
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert shipper.status()["failures"] == 8
    assert "overloaded" in shipper.status()["last_error"]
    host.pass_timer()
    host.dones.pop()(_shipped(), None)
    assert "again" in caplog.records[-1].message
    assert shipper.status()["last_error"] == ""
    assert host.timers[-1][0] == LOOK_MS


def test_a_job_that_dies_or_finds_damage_is_repeated_and_the_node_goes_on() -> None:
    host = Jobs()
    shipper = Shipper(host, "/data", "s3://bucket/a")
    shipper.start()
    host.pass_timer()
    host.dones.pop()(None, RuntimeError("killed"))
    host.pass_timer()
    host.dones.pop()({"corrupt": ["/data/x", 0, "differs", ""]}, None)
    assert len(host.timers) == 1
    assert shipper.status()["failures"] == 2


def test_files_that_change_are_shipped_at_once_and_then_now_and_then() -> None:
    host = Jobs()
    shipper = Shipper(host, "/data", "s3://bucket/a", lambda: 7)
    shipper.start()
    for result in ({"failed": "s3://bucket/a: away"}, _shipped(), _shipped()):
        host.pass_timer()
        host.dones.pop()(result, None)
    host.now_ms += CHANGING_MS
    host.pass_timer()
    changing = [[-1, 7]]
    assert [one["committed"] for one in host.requests] == [changing, changing, None, changing]


def test_a_stopped_node_kills_its_job() -> None:
    host = Jobs()
    shipper = Shipper(host, "/data", "s3://bucket/a")
    shipper.start()
    host.pass_timer()
    shipper.stop()
    assert host.cancelled == 1
    host.dones.pop()(_shipped(), None)
    assert host.timers == []


def test_a_place_that_cannot_be_shipped_to_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(data_dir="d", log_archive_url="s3://bucket/a").log_settings().log_archive_url
    for url, words in (
        ("ftp://host/a", "not supported"),
        ("s3://", "names no bucket"),
        ("some/folder", "is no URL"),
    ):
        with pytest.raises(SettingsError, match=rf"log\.archive\.url: .*{words}"):
            Settings(data_dir="d", log_archive_url=url)
    monkeypatch.setattr(object_stores, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="a store needs pyarrow: run `pip install"):
        Settings(data_dir="d", log_archive_url="s3://bucket/a")


def test_a_node_ships_what_it_has_sealed_and_outlives_a_store_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, url = MemoryStore(fails_at=0), "s3://bucket/a"
    monkeypatch.setattr(shipping, "store_at", lambda url: store)
    settings = {"log_archive_url": url, "log_segment_bytes": 4096, "snapshot_tail_records": 1_000}
    sim = SimNode(settings=settings, topics={"orders": 4})
    client = sim.client("a")
    for offset in range(400):
        assert sim.commit(client, GROUPS[0], {0: offset, 1: offset}) == [0, 0]
    sim.world.run_for(3 * LOOK_MS)
    status = sim.node.status()["shipping"]
    assert (status["failures"], status["segments_left"], status["last_error"]) == (1, 0, "")
    assert status["segments_shipped"] > 2
    shipped = {}
    for runtime in runtimes(sim):
        home = runtime.replica.home
        there = f"{url}/node-1/{home.rpartition('/')[2]}/archive"
        shipped[runtime.shard] = shipped_manifest(store, there).segments
        assert list(shipped[runtime.shard]) == sealed_segments(sim.node.host.files, home)
    assert sum(map(len, shipped.values())) == status["segments_shipped"]
    sent = list(store.sent)
    sim.machine.kill()
    sim.reboot()
    sim.world.run_for(3 * LOOK_MS)
    assert [path for path in store.sent[len(sent) :] if path in sent and path.endswith(".index")] == []
