"""A node's time: that of a majority, delayed where clocks jump, and by a day for retention."""

from __future__ import annotations

import dataclasses
import random

import pytest

from raftlog.env.simulated_files import SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.replica.clock import LOOK_MS, RETENTION_DELAY_MS, STAMPS_DELAY_MS, STEP_MS, AgreedClock, LogTime
from tests.support.manual_host import ManualHost
from tests.support.single_replica import PATH, SETTINGS, SingleReplica, formatted

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
JUMP_MS = 8 * DAY_MS


class Clocks:
    """One node of several, and how far each wall clock is ahead of the true time, its own first."""

    def __init__(self, *wrong_by_ms: float, num_nodes: int = 0) -> None:
        self.host = ManualHost()
        self.true_offset_ms = self.host.wall_offset_ms
        self.others = list(wrong_by_ms[1:])
        self.clock = AgreedClock(
            self.host,
            num_nodes=num_nodes or max(1, len(wrong_by_ms)),
            others=lambda: [self.true_offset_ms + wrong_by for wrong_by in self.others],
        )
        self.set_own(wrong_by_ms[0] if wrong_by_ms else 0)

    def set_own(self, wrong_by_ms: float) -> None:
        self.host.wall_offset_ms = round(self.true_offset_ms + wrong_by_ms)

    @property
    def true_ms(self) -> int:
        return round(self.true_offset_ms + self.host.now_ms)

    @property
    def wrong_by_ms(self) -> tuple[int, int]:
        """Return how far the stamped time and retention's time are ahead of the true time."""
        return self.clock.wall_ms() - self.true_ms, self.clock.past_ms() - self.true_ms

    def started(self, log_is_old_by_ms: int = 0) -> Clocks:
        self.clock.loaded(self.true_ms - log_is_old_by_ms)
        self.clock.start()
        return self


@pytest.mark.parametrize(
    ("num_nodes", "wrong_by_ms", "expected_ms"),
    [
        (3, [0, 5, -5], 0),
        (3, [JUMP_MS, 5, 0], 5),
        (3, [-JUMP_MS, 5, 0], 0),
        (3, [0, JUMP_MS], 0),
        (3, [JUMP_MS, 0], 0),
        (5, [JUMP_MS, JUMP_MS, 0, 1, 2], 2),
        (5, [JUMP_MS, JUMP_MS, 0, 1], 1),
        (5, [0, JUMP_MS, JUMP_MS], 0),
    ],
)
def test_the_latest_time_that_a_majority_of_all_nodes_has_reached(
    num_nodes: int, wrong_by_ms: list[int], expected_ms: int
) -> None:
    clocks = Clocks(*wrong_by_ms, num_nodes=num_nodes)
    clocks.clock.compared()
    assert clocks.wrong_by_ms[0] == expected_ms


def test_an_advanced_clock_stays_ahead_of_all_wall_clocks() -> None:
    clocks = Clocks(0, 0, 0).started()
    clocks.clock.advance(JUMP_MS)
    assert clocks.wrong_by_ms == (JUMP_MS, JUMP_MS)
    clocks.host.advance(3 * STAMPS_DELAY_MS)
    clocks.clock.advance(HOUR_MS)
    clocks.host.advance(RETENTION_DELAY_MS + HOUR_MS)
    assert clocks.wrong_by_ms == (JUMP_MS + HOUR_MS, JUMP_MS + HOUR_MS)


def test_before_a_majority_was_heard_time_goes_on_from_the_newest_entry() -> None:
    clocks = Clocks(JUMP_MS, num_nodes=3).started(log_is_old_by_ms=HOUR_MS)
    clocks.host.advance(60_000)
    assert clocks.wrong_by_ms == (-HOUR_MS, -HOUR_MS)
    clocks.others = [0.0]
    clocks.clock.compared()
    assert clocks.wrong_by_ms == (0, -HOUR_MS)


def test_a_clock_that_was_wrong_for_a_moment_was_not_believed() -> None:
    clocks = Clocks().started()
    clocks.set_own(JUMP_MS)
    clocks.host.advance(STAMPS_DELAY_MS - LOOK_MS)
    assert clocks.wrong_by_ms == (0, 0)
    clocks.set_own(0)
    clocks.host.advance(10 * STAMPS_DELAY_MS)
    assert clocks.wrong_by_ms == (0, 0)


def test_a_step_that_stands_counts_for_stamps_soon_and_for_retention_after_a_day(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = Clocks().started()
    clocks.set_own(JUMP_MS)
    clocks.host.advance(STAMPS_DELAY_MS + 2 * LOOK_MS)
    assert clocks.wrong_by_ms == (JUMP_MS, 0)
    assert "nothing expires by the difference until it has lasted for 24 h" in caplog.text
    assert clocks.clock.status()["not_believed_ms"] == JUMP_MS
    clocks.host.advance(RETENTION_DELAY_MS - STAMPS_DELAY_MS - 4 * LOOK_MS)
    assert clocks.wrong_by_ms == (JUMP_MS, 0)
    clocks.host.advance(4 * LOOK_MS)
    assert clocks.wrong_by_ms == (JUMP_MS, JUMP_MS)


def test_a_step_back_counts_soon_and_for_retention_at_once() -> None:
    clocks = Clocks().started()
    clocks.set_own(-5 * HOUR_MS)
    clocks.host.advance(STAMPS_DELAY_MS)
    assert clocks.wrong_by_ms == (0, -5 * HOUR_MS)
    clocks.host.advance(2 * LOOK_MS)
    assert clocks.wrong_by_ms == (-5 * HOUR_MS, -5 * HOUR_MS)


def test_of_two_clocks_the_one_behind_is_not_believed_before_the_third_is_heard() -> None:
    clocks = Clocks(0, -5 * HOUR_MS, num_nodes=3).started(log_is_old_by_ms=100)
    assert clocks.wrong_by_ms == (-100, -5 * HOUR_MS)
    clocks.others += [5.0]
    clocks.host.advance(2 * LOOK_MS)
    assert clocks.wrong_by_ms == (0, 0)


def test_clocks_that_drift_are_followed() -> None:
    clocks = Clocks(0, 0, 0).started()
    for second in range(1, 3_600):
        clocks.set_own(second)  # 1 ms each second: ten times worse than any quartz
        clocks.others = [second - 3.0, second + 3.0]
        clocks.host.advance(1_000)
        assert all(abs(wrong - second) <= 20 for wrong in clocks.wrong_by_ms)


def test_the_time_for_which_a_node_was_down_counts_for_retention_after_a_day() -> None:
    clocks = Clocks().started(log_is_old_by_ms=3 * DAY_MS)
    assert clocks.wrong_by_ms == (0, -3 * DAY_MS)
    clocks.host.advance(RETENTION_DELAY_MS + 2 * LOOK_MS)
    assert clocks.wrong_by_ms == (0, 0)


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_a_log_that_was_stamped_ahead_says_nothing_of_what_has_passed_after_a_start(num_nodes: int) -> None:
    """Clocks were wrong at the first start, as without a battery, and are right at the restart."""
    clocks = Clocks(*[0] * num_nodes).started(log_is_old_by_ms=-JUMP_MS)
    for _ in range(10):
        assert clocks.wrong_by_ms[1] <= 0
        clocks.host.advance(LOOK_MS)
    assert clocks.wrong_by_ms == (0, 0)


def test_before_all_logs_are_read_no_more_has_passed_than_those_say_that_are() -> None:
    host = ManualHost()
    clock = AgreedClock(host, num_logs=2)
    clock.start()
    host.advance(LOOK_MS)
    assert clock.past_ms() == 0
    clock.loaded(host.wall_ms() - HOUR_MS)
    host.advance(LOOK_MS)
    assert clock.past_ms() == host.wall_ms() - HOUR_MS
    clock.loaded(host.wall_ms() - 60_000)
    assert clock.past_ms() == host.wall_ms() - 60_000


@pytest.mark.parametrize("num_nodes", [3, 5])
def test_a_minority_of_clocks_that_do_anything_moves_nothing(num_nodes: int) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        num_wrong = num_nodes // 2
        clocks = Clocks(*[0.0] * num_nodes).started()
        wrong = set(rng.sample(range(num_nodes), num_wrong))
        newest_ms, times = 0, LogTime(clocks.clock, "a log")
        for _ in range(400):
            said = [
                rng.choice([-1, 1]) * rng.uniform(0, JUMP_MS) if number in wrong else rng.uniform(-50, 50)
                for number in range(num_nodes)
            ]
            clocks.set_own(said[0])
            present = [one for one in said[1:] if rng.random() < 0.9]
            clocks.others = present
            clocks.host.advance(rng.uniform(1, 3 * LOOK_MS))
            stamped, past = clocks.wrong_by_ms
            assert stamped <= 50 + 1
            assert past <= stamped
            now_ms = times.at(clocks.host.monotonic_ms(), newest_ms)
            assert now_ms >= newest_ms
            newest_ms = now_ms


def test_a_log_that_is_ahead_goes_on_at_half_speed_until_the_clock_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = Clocks().started()
    times = LogTime(clocks.clock, "a log")
    first_ms = newest_ms = clocks.true_ms + HOUR_MS
    assert times.at(clocks.host.monotonic_ms(), newest_ms) == newest_ms
    for _ in range(600_000):  # an entry a millisecond: each is stamped too late by less than that
        clocks.host.now_ms += 1
        newest_ms = times.at(clocks.host.monotonic_ms(), newest_ms)
    assert newest_ms == first_ms + 300_000
    clocks.host.advance(2 * HOUR_MS)
    assert times.at(clocks.host.monotonic_ms(), newest_ms) == clocks.true_ms
    assert caplog.text.count("the log's time advances at half speed") == 1


def test_entries_of_another_leader_are_never_overtaken_backwards() -> None:
    clocks = Clocks().started()
    times = LogTime(clocks.clock, "a log")
    times.at(clocks.host.monotonic_ms(), clocks.true_ms + 1_000)
    clocks.host.advance(500)
    newest_ms = clocks.true_ms + 5_000
    assert times.at(clocks.host.monotonic_ms(), newest_ms) == newest_ms
    clocks.host.advance(1_000)
    assert times.at(clocks.host.monotonic_ms(), newest_ms) == newest_ms + 500


def test_a_step_of_a_second_is_drift() -> None:
    clocks = Clocks().started()
    clocks.set_own(STEP_MS)
    clocks.host.advance(LOOK_MS)
    assert clocks.wrong_by_ms == (STEP_MS, STEP_MS)


@pytest.mark.parametrize("wrong_for_ms", [HOUR_MS, RETENTION_DELAY_MS - HOUR_MS])
def test_neither_archive_nor_tombstones_go_by_a_clock_that_jumped(wrong_for_ms: int) -> None:
    """The log's own times advanced with the clock, and snapshots are made all the while."""
    disk = SimFiles()
    formatted(disk)
    settings = dataclasses.replace(
        SETTINGS,
        snapshot_tail_records=100,
        log_archive_retention_ms=7 * DAY_MS,
        delete_retention_ms=2 * DAY_MS,
    )
    node = SingleReplica(disk, settings).start()
    node.clock.start()
    _write(node, 300, deletes="gone")
    node.host.wall_offset_ms += JUMP_MS
    node.host.advance(wrong_for_ms)
    _write(node, 300)
    assert node.replica.last_timestamp_ms > JUMP_MS + node.host.now_ms
    node.host.wall_offset_ms -= JUMP_MS
    node.host.advance(HOUR_MS)
    _write(node, 300)
    assert node.replica.status()["snapshots_made"] >= 6
    assert next(ShardReader(PATH, 0, disk).frames()).index == 1
    snapshot = ShardReader(PATH, 0, disk).snapshot()
    assert snapshot is not None
    assert any(raw.value is None for raw in snapshot.records)


def test_archive_and_tombstones_go_when_their_time_has_passed() -> None:
    disk = SimFiles()
    formatted(disk)
    settings = dataclasses.replace(
        SETTINGS, snapshot_tail_records=100, log_archive_retention_ms=HOUR_MS, delete_retention_ms=HOUR_MS
    )
    node = SingleReplica(disk, settings).start()
    node.clock.start()
    _write(node, 300, deletes="gone")
    node.host.advance(HOUR_MS + LOOK_MS)
    _write(node, 300)
    assert next(ShardReader(PATH, 0, disk).frames()).index > 200
    snapshot = ShardReader(PATH, 0, disk).snapshot()
    assert snapshot is not None
    assert all(raw.value is not None for raw in snapshot.records)


def _write(node: SingleReplica, count: int, deletes: str = "") -> None:
    if deletes:
        node.put_synced((deletes, "v"))
        node.put_synced((deletes, None))
    for number in range(count):
        node.host.now_ms += 1
        node.put_synced((f"k{number % 9}", "v"))
