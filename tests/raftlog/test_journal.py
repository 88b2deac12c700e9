"""A follower's journal: it takes a leader's frames, truncates, reads bytes for peers; also random steps."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.env.errors import Corrupt
from raftlog.env.settings import CHAIN_STRIDE, LogSettings
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.frames import HEADER_BYTES
from raftlog.storage.segments import LAGGING_GROUP_BYTES
from tests.support.single_replica import PATH

from .logs import HOME, chain_of, flush, frame, frames, member_disk, on_disk, open_log, terms_of


@pytest.fixture
def disk() -> SimFiles:
    files = SimFiles()
    member_disk(files)
    return files


# Taking a leader's frames


def test_frames_of_a_leader_are_stored_byte_for_byte(disk: SimFiles) -> None:
    journal = open_log(disk)
    data = frames(1, 100, term=3)
    assert journal.append_frames(data) == 100
    assert journal.durable_index == 0
    flush(journal)
    assert b"".join(on_disk(journal)) == data
    again = open_log(disk.crash(Crash.LOST))
    assert b"".join(on_disk(again)) == data
    assert again.last_timestamp_ms == 1000


@pytest.mark.parametrize(
    "data",
    [
        frames(2, 3, term=1),
        frame(1, 1) + frame(3, 1),
        frame(1, 2) + frame(2, 1),
        frame(1, 1, time_ms=9) + frame(2, 1, time_ms=8),
        frames(1, 3, term=1)[:-1],
        frames(1, 3, term=1) + b"\0",
        b"\0" * HEADER_BYTES,
    ],
    ids=["a gap before", "a gap", "term back", "time back", "cut", "too much", "zeros"],
)
def test_anything_else_is_refused_as_a_whole(disk: SimFiles, data: bytes) -> None:
    journal = open_log(disk)
    with pytest.raises(Corrupt, match="entries from the leader: byte"):
        journal.append_frames(data)
    assert (journal.last_index, journal.is_dirty, journal.uncommitted_bytes) == (0, False, 0)
    assert journal.append_frames(frames(1, 3, term=1)) == 3


def test_every_flipped_byte_of_what_a_leader_sends_is_refused(disk: SimFiles) -> None:
    journal = open_log(disk)
    data = frames(1, 2, term=1)
    for at in range(len(data)):
        with pytest.raises(Corrupt):
            journal.append_frames(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
    assert journal.last_index == 0


def test_leader_and_follower_have_the_same_log(disk: SimFiles) -> None:
    """One journal accepts what the other reads for its peers, from memory and from the file."""
    leader = open_log(disk)
    other = SimFiles()
    member_disk(other)
    follower = open_log(other)
    for number in range(400):
        leader.append(5, leader.durable_index, 1000 + number, 1, frame(1, 1)[HEADER_BYTES:])
        if not number % 7:
            flush(leader)
            leader.take_committed(max(0, leader.durable_index - 20))
        if not number % 50:
            while follower.last_index < leader.last_index:
                data = leader.frames_for(follower.last_index + 1, leader.last_index, 3_000)
                follower.append_frames(data)
                flush(follower)
    assert follower.last_index == 351
    assert on_disk(follower) == on_disk(leader)[:351]
    assert len(leader.segments) > 3


def test_frames_for_gives_at_least_one_and_not_much_more_than_asked(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 50, term=1))
    size = len(frame(1, 1))
    assert journal.frames_for(1, 50, 1) == frame(1, 1)
    assert journal.frames_for(7, 50, 3 * size) == frames(7, 9, term=1)
    assert journal.frames_for(40, 45, 1 << 20) == frames(40, 45, term=1)
    flush(journal)
    journal.take_committed(30)
    assert journal.first_in_memory == 31
    assert journal.frames_for(1, 50, 1) == frame(1, 1)
    assert journal.frames_for(20, 50, 1 << 20) == frames(20, 30, term=1)


def test_committed_entries_are_visited_once_and_chained(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 130, term=4))
    seen: list[tuple[int, int, int, bytes]] = []
    for index in (1, 64, 65, 65, 130):
        journal.take_committed(index, lambda *entry: seen.append(entry))
    assert [one[0] for one in seen] == list(range(1, 131))
    assert all(one == (index, 4, 1000, frame(index, 4)[HEADER_BYTES:]) for index, one in enumerate(seen, 1))
    assert journal.chain.digest == chain_of(frame(index, 4) for index in range(1, 131))


def test_what_is_committed_by_others_stays_in_memory_until_it_is_synced_here(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 10, term=1))
    journal.take_committed(8)
    assert journal.uncommitted_bytes == len(frames(1, 10, term=1))
    assert journal.frames_for(1, 10, 1 << 20) == frames(1, 10, term=1)
    flush(journal)
    assert journal.uncommitted_bytes == len(frames(9, 10, term=1))
    assert journal.frames_for(1, 10, 1 << 20) == frames(1, 8, term=1)


# Truncating


@pytest.mark.parametrize("index", [0, 1, 63, 64, 65, 127, 128, 129, 199, 200])
@pytest.mark.parametrize("synced", [0, 40, 64, 130, 200])
def test_a_tail_is_forgotten_in_memory_and_on_disk(disk: SimFiles, index: int, synced: int) -> None:
    journal = open_log(disk)
    if synced:
        journal.append_frames(frames(1, synced, term=1))
        flush(journal)
    if synced < 200:
        journal.append_frames(frames(synced + 1, 200, term=1))
    journal.truncate_after(index)
    assert (journal.last_index, journal.last_term) == (index, 1 if index else 0)
    assert journal.tail_records == index
    at_once = open_log(disk.crash(Crash.LOST))
    assert at_once.last_index == min(index, synced)
    journal.append_frames(frames(index + 1, 210, term=2))
    flush(journal)
    for left in (journal, open_log(disk.crash(Crash.LOST))):
        assert terms_of(left) == [1] * index + [2] * (210 - index)
        assert b"".join(on_disk(left)) == frames(1, index, term=1) + frames(index + 1, 210, term=2)
    journal.take_committed(210)
    assert journal.uncommitted_bytes == 0
    assert ShardReader(PATH, 0, disk.crash(Crash.KEPT)).verify() == []


def test_a_committed_entry_is_never_forgotten(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 20, term=1))
    flush(journal)
    journal.take_committed(10)
    with pytest.raises(AssertionError, match="is committed"):
        journal.truncate_after(9)
    journal.truncate_after(10)
    assert journal.last_index == 10


def test_the_clock_of_the_log_goes_back_with_its_tail(disk: SimFiles) -> None:
    """A new leader whose clock is behind the deposed one's must be heard."""
    journal = open_log(disk)
    journal.append_frames(frame(1, 1, time_ms=500) + frame(2, 1, time_ms=9_000))
    flush(journal)
    journal.append_frames(frame(3, 1, time_ms=9_500))
    journal.truncate_after(1)
    assert journal.append_frames(frame(2, 2, time_ms=600)) == 2
    journal.truncate_after(0)
    assert journal.append_frames(frame(1, 3, time_ms=1)) == 1


def test_loaded_entries_can_be_forgotten_too(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 300, term=1))
    flush(journal)
    left = disk.crash(Crash.LOST)
    again = open_log(left)
    again.truncate_after(70)
    assert (again.last_index, again.durable_index, again.tail_records) == (70, 70, 70)
    assert [segment.first_index for segment in again.segments] == [1, 65]
    assert open_log(left.crash(Crash.LOST)).last_index == 70


# Groups, and what a crash leaves of them


def test_a_follower_behind_the_commit_index_writes_small_groups(disk: SimFiles) -> None:
    """A frame that names entries of its own group as committed would otherwise prove, after a torn write, the
    loss of entries that this node never synced."""
    journal = open_log(disk, LogSettings())
    text = "x" * 10_000
    count = 3 * LAGGING_GROUP_BYTES // 10_000
    data = b"".join(frame(index, 1, commit_index=count, text=text) for index in range(1, count + 1))
    journal.append_frames(data)
    groups = []
    while journal.is_dirty:
        work, before = journal.begin_flush(), journal.durable_index
        work()
        journal.end_flush()
        groups.append(journal.durable_index - before)
    assert len(groups) >= 3
    assert max(groups) * 10_000 < LAGGING_GROUP_BYTES + 20_000
    level = open_log(disk.crash(Crash.LOST), LogSettings())
    level.append_frames(
        b"".join(frame(n, 2, commit_index=count, text=text) for n in range(count + 1, 2 * count))
    )
    work = level.begin_flush()
    work()
    level.end_flush()
    assert level.durable_index == 2 * count - 1, "nothing of it was committed before: one group"


def test_a_torn_group_with_committed_entries_is_cut(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 10, term=1))
    flush(journal)
    journal.append_frames(b"".join(frame(n, 1, commit_index=25) for n in range(11, 31)))
    flush(journal)
    torn = disk.crash(Crash.LOST)
    torn.damage(f"{HOME}/00000000000000000001.log", journal.offsets[14] + 20)
    assert open_log(torn).last_index == 14
    alone = disk.crash(Crash.LOST)
    alone.damage(f"{HOME}/00000000000000000001.log", journal.offsets[14] + 20)
    with pytest.raises(Corrupt, match="shows it was committed"):
        open_log(alone, is_alone=True)


def test_damage_far_from_the_end_is_no_torn_group(disk: SimFiles) -> None:
    journal = open_log(disk, LogSettings())
    text = "x" * 10_000
    count = 2 * LAGGING_GROUP_BYTES // 10_000
    for index in range(1, count + 1):
        journal.append_frames(frame(index, 1, commit_index=index - 1, text=text))
        flush(journal)
    disk.damage(f"{HOME}/00000000000000000001.log", journal.offsets[3] + 20)
    assert any(one.severity == "damage" for one in ShardReader(PATH, 0, disk).verify())
    with pytest.raises(Corrupt, match="though entries up to 52 were synced here"):
        open_log(disk, LogSettings())
    disk.unlink(f"{HOME}/synced")  # as in a directory of an older release, or after a power loss
    with pytest.raises(Corrupt, match="shows it was committed"):
        open_log(disk, LogSettings())


def test_what_is_loaded_is_durable_before_it_is_acknowledged(disk: SimFiles) -> None:
    """A killed process leaves entries in the page cache; a power loss after the restart must not take what
    the follower has acknowledged since."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 70, term=1))
    file = journal.segments[-1].file
    file.pwrite(frames(1, 50, term=1), journal.segments[-1].end)
    again = open_log(disk)
    assert again.durable_index == 50
    assert open_log(disk.crash(Crash.LOST)).last_index == 50


def test_a_failed_sync_of_committed_entries_is_made_good_at_the_next_start(disk: SimFiles) -> None:
    """The page cache still shows the group, but no later sync would write it."""
    journal = open_log(disk)
    journal.append_frames(b"".join(frame(n, 1, commit_index=25) for n in range(1, 31)))
    disk.fail = lambda _number, operation, path: OSError(5, "no", path) if operation == "fdatasync" else None
    with pytest.raises(OSError, match="no"):
        journal.begin_flush()()
    disk.fail = None
    again = open_log(disk)
    assert again.durable_index == 30
    assert open_log(disk.crash(Crash.LOST)).last_index == 30


# Random steps against a list


class Model:
    """A follower's log as a list, and how much of it must survive."""

    def __init__(self, seed: int) -> None:
        self.disk = SimFiles(seed)
        member_disk(self.disk)
        self.journal = open_log(self.disk)
        self.rng = random.Random(seed)
        self.entries: list[bytes] = []
        self.durable = 0
        self.committed = 0
        self.term = 1

    def append(self, count: int) -> None:
        """Append a leader's frames, of the present term or a newer one, whose commit index may exceed what is
        synced here."""
        self.term += self.rng.random() < 0.3
        first = len(self.entries) + 1
        known = self.rng.randrange(self.committed, first + count)
        found = [frame(first + number, self.term, known) for number in range(count)]
        assert self.journal.append_frames(b"".join(found)) == first + count - 1
        self.entries += found

    def propose(self, count: int) -> None:
        """Append entries as the leader of a new term."""
        self.term += 1
        for _ in range(count):
            index = len(self.entries) + 1
            text = frame(index, self.term, self.committed)
            assert self.journal.append(self.term, self.committed, 1000, 1, text[HEADER_BYTES:]) == index
            self.entries.append(text)

    def flush(self, count: int) -> None:
        """Write up to `count` groups; the last one may be in flight when a crash comes."""
        for _ in range(count):
            if self.journal.is_dirty:
                work = self.journal.begin_flush()
                work()
                self.journal.end_flush()
                self.durable = self.journal.durable_index

    def commit(self, count: int) -> None:
        """Commit some of the synced entries."""
        self.committed = min(self.committed + count, self.durable)
        if self.journal.first_in_memory <= self.journal.chain.index + 1:
            seen: list[int] = []
            self.journal.take_committed(self.committed, lambda index, *_: seen.append(index))

    def truncate(self, count: int) -> None:
        """Cut the tail that another leader's log does not have."""
        index = max(self.committed, len(self.entries) - count)
        self.journal.truncate_after(index)
        del self.entries[index:]
        self.durable = min(self.durable, index)
        self.term += 1

    def crash(self, count: int) -> None:
        """Crash the machine, at rest or in the middle of writing a group."""
        if count % 2:
            self._stop_writing()
        self.disk = self.disk.crash(self.rng.choice(list(Crash)), seed=count)
        self._restart()

    def kill(self, count: int) -> None:
        """Kill the process: the page cache stays."""
        self._stop_writing()
        self._restart()

    def fail(self, count: int) -> None:
        """Fail a write or a sync, which stops the node."""
        self.disk.fail = lambda _number, operation, path: OSError(5, operation, path)
        self._stop_writing()
        self._restart()

    def _restart(self) -> None:
        self.disk.fail = self.disk.on_call = None
        self.journal = open_log(self.disk)
        self.check_loaded()

    def _stop_writing(self) -> None:
        calls = self.rng.randrange(5)

        def stop(_number: int, _operation: str, _path: str, _done: bool) -> None:
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise OSError(4, "stopped here")

        self.disk.on_call = stop
        with contextlib.suppress(OSError):
            if self.journal.is_dirty:
                self.journal.begin_flush()()

    def check_loaded(self) -> None:
        """Assert that a prefix of the log was loaded, with everything synced; all of it is now durable."""
        last = self.journal.last_index
        assert self.durable <= last <= len(self.entries)
        del self.entries[last:]
        self.durable = last
        assert open_log(self.disk.crash(Crash.LOST)).last_index == last
        assert ShardReader(PATH, 0, self.disk).verify() == []
        for index in range(1, self.committed + 1):
            chain = self.journal.chain
            if index % CHAIN_STRIDE == 0 or index == self.committed:
                chain.add(b"".join(self.entries[chain.index : index]), index)

    def check(self) -> None:
        """Assert that memory and disk equal the list, and that a crash now would lose nothing synced."""
        journal = self.journal
        after = open_log(self.disk.crash(self.rng.choice(list(Crash)), seed=self.durable))
        assert self.durable <= after.last_index <= len(self.entries)
        assert on_disk(after) == self.entries[: after.last_index]
        assert journal.last_index == len(self.entries)
        assert journal.tail_records == len(self.entries)
        assert on_disk(journal) == self.entries[: self.durable]
        if self.entries:
            first = self.rng.randrange(len(self.entries)) + 1
            data = journal.frames_for(first, journal.last_index, 4_000)
            assert b"".join(self.entries[first - 1 :]).startswith(data)
        held = self.entries[journal.first_in_memory - 1 :]
        assert journal.uncommitted_bytes == sum(map(len, held))
        assert journal.chain.digest == chain_of(self.entries[: journal.chain.index])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "propose", "flush", "commit", "truncate", "crash", "kill", "fail"]),
        st.integers(1, 90),
    ),
    min_size=8,
    max_size=30,
)


@given(st.integers(0, 1 << 30), STEPS)
@settings(max_examples=150, deadline=None)
def test_random_steps_leave_what_a_list_would_hold(seed: int, steps: list[tuple[str, int]]) -> None:
    model = Model(seed)
    for name, count in steps:
        getattr(model, name)(count)
        model.check()
