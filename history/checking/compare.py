"""`compare`: do the nodes of a cluster hold the same history? From their files alone, also while they run.

Per shard the logs are walked side by side, entry by entry. Frames must be byte-equal up to the last decided
one. The hash chain of each log is recomputed on the way. At the highest index that all nodes hold, the states
are compared, each replayed from the node's own snapshot and entries. Only the first difference is described,
since everything after it follows from it.

Three things must not be confused:

- a *difference*: decided entries that are not the same bytes. It cannot happen unless something is broken.
- *undecided* entries: a tail that was never acknowledged, truncated or completed when its node rejoins.
  A leader that failed alone leaves one, possibly below the index that the others have decided since.
- being *behind*: fewer entries, all of them the same.

Damage is named by file and offset, and the walk continues after it. Memory holds a segment per node and the
state of one shard, never a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from history.reading.difference import Difference, difference_text
from history.reading.members import MemberDirectory, num_voters, open_members, strangers
from history.reading.node import NodeLog, ShardFiles
from history.reading.quorum import Tail, decided, quorum_of
from history.reading.sidebyside import LogSide, Walked, tails_of, walk
from history.reading.source import NothingToRead, Walk
from history.render import LOCAL, TimeStyle, plural, sentence_list
from history.state.replay import ShardReplay
from history.words import shard_name
from raftlog.offline.reader import Damaged, Problem
from records import RecordsError

DIRECTORIES_MIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShard:
    """One shard in one node's directory; hashes are hexadecimal, ``None`` if the files do not give them."""

    node: str
    first_index: int
    """The oldest entry kept."""
    last_index: int
    """The newest entry that agrees with the decided history."""
    commit_index: int
    """The highest index that this directory alone names as committed."""
    snapshot_index: int | None
    behind: int
    """Number of decided entries that it does not hold yet."""
    undecided: int
    """Number of whole entries at its end that are not decided, or never will be."""
    torn_bytes: int
    """Bytes after its last whole entry, which a crash left of a write; the next start truncates them."""
    chain_hash: str | None
    """The hash chain over all entries up to the shard's common index."""
    state_hash: str | None
    """The state hash at the shard's common index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardComparison:
    """One shard on all nodes."""

    shard: int
    decided_index: int
    """The index up to which all directories together prove entries to be decided."""
    common_index: int | None
    """The highest decided index that every node holds; ``None``: there is none."""
    compared: int
    """Number of entries that at least two nodes hold and that are the same bytes."""
    nodes: tuple[NodeShard, ...]
    difference: Difference | None
    problems: tuple[Problem, ...]
    findings: tuple[str, ...]
    """Faults other than damage, in words."""

    @property
    def ok(self) -> bool:
        """Whether all nodes hold the same, as far as they hold anything."""
        return self.difference is None and not self.problems and not self.findings

    @property
    def chain_hash(self) -> str | None:
        """The hash chain at the common index; ``None`` unless all nodes have it and it is the same."""
        return _one({node.chain_hash for node in self.nodes})

    @property
    def state_hash(self) -> str | None:
        """The state hash at the common index; ``None`` unless all nodes have it and it is the same."""
        return _one({node.state_hash for node in self.nodes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of the directories of a cluster."""

    members: tuple[MemberDirectory, ...]
    quorum: int
    findings: tuple[str, ...]
    """Reasons why the directories are not of one cluster; no shard is compared then."""
    problems: tuple[Problem, ...]
    """Damage that belongs to no shard."""
    notes: tuple[str, ...]
    shards: tuple[ShardComparison, ...]

    @property
    def ok(self) -> bool:
        return not self.findings and not self.problems and all(shard.ok for shard in self.shards)

    @property
    def num_findings(self) -> int:
        """Number of things that are wrong."""
        inside = sum(
            len(one.findings) + len(one.problems) + (one.difference is not None) for one in self.shards
        )
        return len(self.findings) + len(self.problems) + inside


def _one(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None


def compare(paths: Sequence[str], style: TimeStyle = LOCAL) -> Comparison:
    """Compare the directories of nodes, or those in one folder; writes nothing.

    Raises `NothingToRead` if there are fewer than two, if one holds no node, or if one is given twice.
    """
    opened = open_members(paths)
    if len(opened) < DIRECTORIES_MIN:
        raise NothingToRead(
            f"only one node's directory is given ({opened[0][0].path}): a comparison needs at least two,"
            " or the folder that holds them as node-1, node-2, ..."
        )
    members = tuple(member for member, _ in opened)
    findings = tuple(strangers(members))
    numbers = sorted({shard for _, log in opened for shard in log.shards} | _expected_shards(members))
    return Comparison(
        members=members,
        quorum=quorum_of(num_voters(members)),
        findings=findings,
        problems=tuple(problem for _, log in opened for problem in log.problems),
        notes=tuple(_notes(opened)),
        shards=() if findings else tuple(_compare_shard(number, opened, style) for number in numbers),
    )


def _expected_shards(members: Sequence[MemberDirectory]) -> set[int]:
    return {
        shard for member in members if member.num_shards is not None for shard in range(-1, member.num_shards)
    }


def _notes(opened: Sequence[tuple[MemberDirectory, NodeLog]]) -> Iterator[str]:
    members = [member for member, _ in opened]
    given = {member.node_id for member in members}
    absent = sorted({voter for member in members for voter in member.voters} - given)
    if absent:
        yield f"missing: {sentence_list([f'node {one}' for one in absent])}"
    if len(given) < len(members):
        yield "two directories belong to one node: they count once toward a quorum"


def _compare_shard(
    number: int, opened: Sequence[tuple[MemberDirectory, NodeLog]], style: TimeStyle
) -> ShardComparison:
    findings: list[str] = []
    sides: list[LogSide] = []
    for place, (member, log) in enumerate(opened):
        if number not in log.readers:
            findings.append(f"{member.name} does not hold {shard_name(number)}: {member.path}")
            continue
        sides.append(LogSide(member.name, member.counted_as(place), ShardFiles(member.path, number)))
    voters = num_voters([member for member, _ in opened])
    tails = tails_of(sides, voters)
    proven = decided(tails, voters)
    walked = walk(sides, proven, style)
    nodes = tuple(
        _node_shard(side, tail, proven.index, walked, at)
        for at, (side, tail) in enumerate(zip(sides, tails, strict=True))
    )
    findings.extend(_disagreements(sides, tails, nodes, walked))
    return ShardComparison(
        shard=number,
        decided_index=proven.index,
        common_index=walked.common_index,
        compared=walked.compared,
        nodes=nodes,
        difference=walked.difference,
        problems=tuple(problem for side in sides for problem in side.problems),
        findings=tuple(findings),
    )


def _node_shard(side: LogSide, tail: Tail, decided_index: int, walked: Walked, at: int) -> NodeShard:
    last_index = side.end if walked.difference is None else min(tail.last_index, decided_index)
    after = last_index if side.is_cut else decided_index
    return NodeShard(
        node=side.node,
        first_index=side.base_index + 1,
        last_index=last_index,
        commit_index=tail.commit_index,
        snapshot_index=None if side.header is None else side.header.last_index,
        behind=decided_index - last_index,
        undecided=max(tail.last_index - after, 0),
        torn_bytes=side.torn_bytes,
        chain_hash=walked.chains[at] if walked.common_index is not None else None,
        state_hash=None if walked.common_index is None else _state_hash(side, walked.common_index),
    )


def _state_hash(side: LogSide, index: int) -> str | None:
    """The state hash after ``index`` by this node's own files; ``None`` if they do not reach it."""
    reader = side.reader
    try:
        run = ShardReplay(reader.shard).run(
            Walk(reader.shard, reader, to_index=index, from_snapshot=True, with_undecided=True)
        )
    except (Damaged, RecordsError):
        return None
    return f"{run.state_hash:016x}" if run.index == index else None


def _disagreements(
    sides: Sequence[LogSide], tails: Sequence[Tail], nodes: Sequence[NodeShard], walked: Walked
) -> Iterator[str]:
    for side, tail in zip(sides, tails, strict=True):
        if tail.last_index < tail.commit_index:
            yield (
                f"{side.node} says that entry {tail.commit_index} is committed, but ends with entry "
                f"{tail.last_index}: it has lost entries"
            )
    if walked.common_index is None:
        begins = max(sides, key=lambda side: side.base_index)
        ends = min(sides, key=lambda side: side.end)
        yield (
            f"no entry is on all nodes: {begins.node} begins after {begins.base_index}, {ends.node} ends "
            f"with {ends.end}"
        )
        return
    for what, hashes in (
        ("hash chain", [node.chain_hash for node in nodes]),
        ("state", [node.state_hash for node in nodes]),
    ):
        if len({one for one in hashes if one is not None}) > 1:
            said = ", ".join(f"{node.node} has {one}" for node, one in zip(nodes, hashes, strict=True) if one)
            yield f"the {what} at index {walked.common_index} differs: {said}"


def comparison_text(comparison: Comparison, style: TimeStyle = LOCAL) -> Iterator[str]:
    """Lines of text: the directories, how far each shard agrees, and what does not."""
    for member in comparison.members:
        yield f"{member.name}: {member.path}"
    for note in comparison.notes:
        yield f"note: {note}"
    for found in comparison.findings:
        yield f"BROKEN: {found}"
    for problem in comparison.problems:
        yield from _problem_text(problem)
    for shard in comparison.shards:
        yield from _shard_text(shard, style)
    count = comparison.num_findings
    yield "compared: identical on all nodes" if comparison.ok else f"compared: {plural(count, 'finding')}"


def _shard_text(shard: ShardComparison, style: TimeStyle) -> Iterator[str]:
    name = shard_name(shard.shard)
    if shard.common_index is None:
        yield f"{name}: no entries in common; decided up to index {shard.decided_index:,}"
    elif not shard.decided_index:
        yield f"{name}: empty"
    else:
        yield (
            f"{name}: identical up to index {shard.common_index:,}; decided up to index "
            f"{shard.decided_index:,}"
        )
        chain = _hash_text({node.node: node.chain_hash for node in shard.nodes})
        state = _hash_text({node.node: node.state_hash for node in shard.nodes})
        yield f"  chain {chain}, state {state}"
    for node in shard.nodes:
        yield f"  {_node_text(node)}"
    for problem in shard.problems:
        yield from (f"  {line}" for line in _problem_text(problem))
    for found in shard.findings:
        yield f"  BROKEN: {found}"
    if shard.difference is not None:
        yield from (f"  {line}" for line in _flagged(difference_text(shard.difference, style)))


def _hash_text(hashes: Mapping[str, str | None]) -> str:
    known = {one for one in hashes.values() if one is not None}
    if len(known) != 1:
        return "different" if known else "unknown"
    unknown = [node for node, one in hashes.items() if one is None]
    return known.pop() + (f" (unknown for {sentence_list(unknown)})" if unknown else "")


def _flagged(lines: Iterator[str]) -> Iterator[str]:
    yield f"DIFFERENT: {next(lines)}"
    yield from lines


def _node_text(node: NodeShard) -> str:
    said = f"{node.node}: no entries"
    if node.last_index >= node.first_index:
        said = f"{node.node}: entries {node.first_index:,} to {node.last_index:,}"
        said += f" (committed up to {node.commit_index:,})"
    if node.snapshot_index is not None:
        said += f", snapshot of {node.snapshot_index:,}"
    if node.behind:
        said += f", {plural(node.behind, 'entry')} behind"
    if node.undecided:
        said += f", {node.undecided:,} undecided at its end"
    if node.torn_bytes:
        said += f", {plural(node.torn_bytes, 'torn byte')} at its end"
    return said


def _problem_text(problem: Problem) -> Iterator[str]:
    place = f"{problem.file} at byte {problem.offset}"
    index = "" if problem.index is None else f", index {problem.index}"
    yield f"BROKEN {place}{index}: {problem.what}"
    if problem.hint:
        yield f"  to do: {problem.hint}"
