"""/metrics as Prometheus reads it: the metrics of groups, the nodes that report them, their documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cluster.http.kafka_metrics import PREFIX
from cluster.http.recent import LOOK_MS, WINDOW_S, Recent
from tests.listeners.http_rig import HttpRig, http_rig
from tests.support.listener_rig import Rig, heartbeat

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


async def families(rig: HttpRig) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(await rig.text("/metrics"))}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    """Return the samples' values by the values of their labels."""
    assert {sample.name for sample in family.samples} <= {family.name}
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def explained() -> dict[str, tuple[str, str, set[str]]]:
    """Return the documentation's table of Kafka's names: type, label, and the label's values."""
    _, _, section = OPERATIONS.read_text(encoding="utf-8").partition("### Under Kafka's names")
    found = {}
    for names, kind, labels in re.findall(r"^\| (`.*?) \| (\w+) \| (.*?) \|", section, re.MULTILINE):
        label, *values_of = re.findall(r"`(\w+)`", labels) or [""]
        for name in re.findall(r"`(\w+)`", names):
            found[PREFIX + name] = (kind, label, set(values_of))
    return found


async def test_the_table_of_kafkas_names_is_what_is_scraped() -> None:
    async with http_rig() as rig:
        scraped = {}
        for name, family in (await families(rig)).items():
            if name.startswith("kafka_"):
                labels = [sample.labels for sample in family.samples]
                scraped[name] = (
                    family.type.replace("unknown", "untyped"),  # the parser's word for it
                    "".join(labels[0]),
                    {value for one in labels for value in one.values()},
                )
    assert scraped == explained()


async def test_groups_are_counted_by_type_and_by_state_where_they_are_served() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 12)
        for group_id, epoch in (("billing", 4), ("search", 1)):
            rig.node.add_group(group_id, epoch)
        rig.node.add_offset("simple", 77)
        rig.node.add_offset("billing", 77)
        found = await families(rig)
        assert values(found[PREFIX + "group_count"]) == {("consumer",): 2, ("classic",): 1}
        assert values(found[PREFIX + "consumer_group_count"]) == {
            ("empty",): 2, ("assigning",): 0, ("reconciling",): 0, ("stable",): 0, ("dead",): 0,
        }  # fmt: skip
        assert values(found[PREFIX + "partition_count"]) == {("loading",): 0, ("active",): 2, ("failed",): 0}
        assert values(found[PREFIX + "consumer_group_rebalance_count"]) == {(): 12}
        assert values(found[PREFIX + "event_queue_size"]) == {(): 2}
        assert values(found[PREFIX + "partition_load_time_max"]) == {(): 21}
        assert values(found[PREFIX + "partition_load_time_avg"]) == {(): 20.5}
        assert sum(values(found["quorate_groups"]).values()) == 3
        assert len(values(found["quorate_groups"])) == 2 * 7, "every state of both shards"
        assert sum(values(found["quorate_offsets"]).values()) == 2


async def test_who_does_not_serve_a_shard_counts_nothing_of_it() -> None:
    async with http_rig() as rig:
        rig.node.add_topic("orders", 12)
        rig.node.add_group("billing")
        for shard in (rig.node.metadata, *rig.node.shards):
            shard.is_ready = False
        found = await families(rig)
    for name in ("quorate_groups", "quorate_members", "quorate_offsets"):
        assert values(found[name]) == {}
    assert "quorate_topics" not in found
    assert values(found[PREFIX + "group_count"]) == {("consumer",): 0, ("classic",): 0}
    assert set(values(found[PREFIX + "consumer_group_count"]).values()) == {0}
    assert values(found[PREFIX + "partition_count"])["loading",] == 2
    assert values(found[PREFIX + "partition_load_time_max"]) == {(): 0}


async def test_a_shard_that_is_lost_while_it_is_counted_is_not_told() -> None:
    async with http_rig() as rig:
        rig.node.add_group("billing")
        first, last = rig.node.shards
        counting = last.machine.counting
        last.machine.counting = lambda: setattr(first, "is_ready", False) or counting()
        found = await families(rig)
    assert {shard for shard, _ in values(found["quorate_groups"])} == {"1"}
    assert values(found[PREFIX + "partition_count"])["active",] == 1


def test_requests_that_wait_for_their_turn_are_counted() -> None:
    rig = Rig(clock_step_ms=0.02)
    client = rig.connect()
    client.send(b"".join(heartbeat(number) for number in range(1_000)))
    assert rig.world.run_until(lambda: rig.listener.num_unserved > 0, within_ms=100)
    rig.run(1_000)
    assert (len(rig.node.asked), rig.listener.num_unserved) == (1_000, 0)


@dataclass
class Seconds:
    """A host on which each second has a given share of work."""

    now_ms: float = 0.0
    worked_ms: float = 0.0
    epochs: int = 0
    due: Callable[[], None] = field(default=lambda: None)

    def monotonic_ms(self) -> float:
        return self.now_ms

    def busy_ms(self) -> float:
        return self.worked_ms

    def call_later(self, delay_ms: float, fn: Callable[[], None]) -> SimpleNamespace:
        assert delay_ms == LOOK_MS
        self.due = fn
        return SimpleNamespace(cancel=lambda: setattr(self, "due", lambda: None))

    def second(self, busy: float, epochs: int = 0) -> None:
        self.now_ms += LOOK_MS
        self.worked_ms += LOOK_MS * busy
        self.epochs += epochs
        self.due()


def test_the_last_half_minute_and_nothing_before_it() -> None:
    host = Seconds()
    recent = Recent(host, lambda: host.epochs)  # type: ignore[arg-type]
    recent.start()
    host.now_ms, host.worked_ms, host.epochs = 500, 100, 1
    assert recent.idle_ratios() == (0.8, 0.8)
    assert recent.rebalances_per_s() == 2
    host.now_ms, host.worked_ms, host.epochs = 0, 0, 0
    host.second(1.0, epochs=60)
    assert recent.idle_ratios() == (0, 0)
    for _ in range(WINDOW_S - 1):
        host.second(0.25)
    assert recent.idle_ratios() == (0, 0.75 * (WINDOW_S - 1) / WINDOW_S)
    assert recent.rebalances_per_s() == 60 / WINDOW_S
    host.second(0.25)
    assert recent.idle_ratios() == (0.75, 0.75)
    assert recent.rebalances_per_s() == 0
    recent.stop()
    host.second(1.0)
    assert recent.idle_ratios() == (0.75, 0.75)
