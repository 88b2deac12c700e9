"""`quorate groups reset-offsets`: an operator moves what a group has committed.

The plan is shown first, and nothing changes without `--execute`. A group with members is refused: they would
commit over it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.commands.group_offsets import by_topic
from quorate.commands.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    EndOffsetsFrom,
    Group,
    Json,
    Timeout,
    connect,
    kafka_offsets,
)
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, say

if TYPE_CHECKING:
    from quorate.client import Client, GroupDescription
    from quorate.endoffsets import KafkaOffsets
    from quorate.offsetplan import Ends, Partition, Step, Wish


def reset_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:PARTITIONS]", help="Which partitions; several times."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition that has a committed offset.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To N.")] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the beginning: 0, or what --end-offsets-from says.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end; needs --end-offsets-from.")
    ] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To where they are, to export or to renew them.")
    ] = False,
    to_datetime: Annotated[
        str,
        typer.Option(
            "--to-datetime", metavar="TIME", help="To the first record since then; needs --end-offsets-from."
        ),
    ] = "",
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="By N, backwards with a minus.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="As a file says: topic,partition,offset."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="CSV", help="Write the plan to a file; - prints it.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else the plan is only shown.")] = False,
    end_offsets_from: EndOffsetsFrom = "",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Move the committed offsets of a group without members: the plan first, the change with --execute.

    Example: quorate groups reset-offsets billing --topic orders:0,1 --to-offset 100 --execute
    """
    goals = {
        "--to-offset": to_offset is not None,
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-datetime": bool(to_datetime),
        "--shift-by": shift_by is not None,
        "--from-file": from_file is not None,
    }
    goal = _one_of(goals, "where to")
    which = {"--topic": bool(topic), "--all-topics": all_topics, "--from-file": from_file is not None}
    _one_of(which, "which partitions")
    moment_ms = _moment(to_datetime) if to_datetime else None
    if goal in ("--to-latest", "--to-datetime") and not end_offsets_from:
        raise CommandError(
            f"{goal} needs --end-offsets-from HOST:PORT",
            hint="Quorate keeps no records: only the Kafka cluster that does knows where a topic is",
            code=ExitCode.USAGE,
        )
    from quorate.offsetplan import plan

    named = by_topic(topic or ())
    told = _read(from_file) if from_file is not None else {}
    source = kafka_offsets(end_offsets_from, timeout_s)
    with connect(bootstrap, timeout_s) as client:
        if source is not None:
            source.check_is_not(client.cluster_id())
        found = _without_members(client, group)
        committed = found.offsets if found is not None else {}
        if told:
            partitions = list(told)
            _check_there(client, partitions)
        elif all_topics:
            partitions = [(name, number) for name, by in committed.items() for number in by]
        else:
            partitions = _named_partitions(client, named)
        ends = _ends(source, partitions)
        wish = _wish(goal, to_offset, shift_by, told, ends, source, moment_ms, partitions)
        asks_source = goal in ("--to-earliest", "--to-latest", "--to-datetime")
        why_not = "is not known there" if asks_source else "has no committed offset"
        steps = plan(partitions, committed, wish, ends, why_not)
        if goal == "--shift-by":
            _check_shiftable(steps, named)
        changes = [step for step in steps if step.is_change or (to_current and step.new is not None)]
        if execute and changes:
            client.commit(group, _offsets(changes))
    if export is not None and _export(export, steps):
        return
    _show(group, found is None, steps, execute, len(changes), json)


def _one_of(options: Mapping[str, bool], what: str) -> str:
    """The one option that is given; raises `CommandError` (usage) for none or several."""
    given = [name for name, is_given in options.items() if is_given]
    if len(given) == 1:
        return given[0]
    said = f"say {what}" if not given else f"{' and '.join(given)} exclude each other"
    raise CommandError(said, hint=f"give one of {', '.join(options)}", code=ExitCode.USAGE)


def _moment(text: str) -> int:
    from history.render import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise CommandError(f"--to-datetime: {error}", code=ExitCode.USAGE) from error


def _read(path: Path) -> dict[Partition, int]:
    from quorate.offsetplan import FILE_BYTES_MAX, from_csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read(FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise CommandError(f"cannot read {path}: {reason}", code=ExitCode.USAGE) from error
    return from_csv(text, str(path))


def _without_members(client: Client, group_id: str) -> GroupDescription | None:
    """The group, None where there is none yet; raises `CommandError` for one that has members."""
    from quorate.client import Refused
    from wire.errors import ErrorCode

    try:
        found = client.describe_group(group_id)
    except Refused as error:
        if error.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if found.members or found.state != "Empty":
        number = len(found.members)
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"it has {number} member{'s' * (number != 1)} and is {found.state}",
            f"resetting offsets of group {group_id!r}",
        )
    return found


def _named_partitions(client: Client, named: Mapping[str, list[int] | None]) -> list[Partition]:
    sizes = {topic.name: topic.num_partitions for topic in client.topics()}
    wanted = []
    for name, numbers in named.items():
        if name not in sizes:
            raise _no_topic(name)
        wanted += [(name, number) for number in (range(sizes[name]) if numbers is None else numbers)]
    _check_numbers(wanted, sizes)
    return wanted


def _check_there(client: Client, partitions: Sequence[Partition]) -> None:
    sizes = {topic.name: topic.num_partitions for topic in client.topics()}
    for name, _ in partitions:
        if name not in sizes:
            raise _no_topic(name)
    _check_numbers(partitions, sizes)


def _no_topic(name: str) -> CommandError:
    return CommandError(
        f"there is no topic {name!r}",
        hint="`quorate topics list` shows the topics that are there",
        code=ExitCode.REFUSED,
    )


def _check_numbers(partitions: Sequence[Partition], sizes: Mapping[str, int]) -> None:
    for name, number in partitions:
        if number >= sizes[name]:
            raise CommandError(
                f"topic {name!r} has no partition {number}",
                hint=f"it has {sizes[name]}, from 0 to {sizes[name] - 1}",
                code=ExitCode.REFUSED,
            )


def _ends(source: KafkaOffsets | None, partitions: Sequence[Partition]) -> Ends:
    if source is None:
        return {}
    first, last = source.earliest(partitions), source.latest(partitions)
    return {partition: (first[partition], last[partition]) for partition in first if partition in last}


def _wish(
    goal: str,
    to_offset: int | None,
    shift_by: int | None,
    told: Mapping[Partition, int],
    ends: Ends,
    source: KafkaOffsets | None,
    moment_ms: int | None,
    partitions: Sequence[Partition],
) -> Wish:
    """The goal as a function. An end that was asked for and is not known leaves the partition as it is."""

    def end(place: int) -> Callable[[Partition], int | None]:
        return lambda partition: ends[partition][place] if partition in ends else None

    if goal == "--to-earliest":
        earliest = end(0) if source is not None else lambda partition: 0
        return lambda partition, now: earliest(partition)
    if goal == "--to-latest":
        latest = end(1)
        return lambda partition, now: latest(partition)
    if goal == "--to-datetime":
        assert source is not None
        assert moment_ms is not None
        since = source.at(partitions, moment_ms)
        return lambda partition, now: since.get(partition)
    if shift_by is not None:
        by = shift_by
        return lambda partition, now: None if now is None else now + by
    if goal == "--from-file":
        return lambda partition, now: told[partition]
    if goal == "--to-current":
        return lambda partition, now: now
    return lambda partition, now: to_offset


def _check_shiftable(steps: Sequence[Step], named: Mapping[str, list[int] | None]) -> None:
    """A partition that was named by its number, and has nothing to shift, is a mistake."""
    for step in steps:
        if step.now is None and named.get(step.topic) is not None:
            raise CommandError(
                f"{step.topic}-{step.partition} has no committed offset that could be shifted",
                hint="set it with --to-offset",
                code=ExitCode.REFUSED,
            )


def _offsets(steps: Sequence[Step]) -> dict[str, dict[int, int]]:
    offsets: dict[str, dict[int, int]] = {}
    for step in steps:
        assert step.new is not None
        offsets.setdefault(step.topic, {})[step.partition] = step.new
    return offsets


def _export(path: Path, steps: Sequence[Step]) -> bool:
    """Writes the plan; whether it went to standard output, where nothing else may stand then."""
    from quorate.offsetplan import to_csv

    text = to_csv(steps)
    if str(path) == "-":
        sys.stdout.write(text)
        return True
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", code=ExitCode.USAGE) from error
    return False


def _show(
    group_id: str, is_new: bool, steps: Sequence[Step], is_done: bool, num_changes: int, json: bool
) -> None:
    if json:
        plan = [dataclasses.asdict(step) for step in steps]
        print_json(
            {
                "group": group_id,
                "exists": not is_new,
                "plan": plan,
                "changes": num_changes,
                "executed": is_done and num_changes > 0,
            }
        )
        return
    if is_new:
        say(f"group {group_id} does not exist yet: the reset {'made' if is_done else 'would make'} it")
    rows = [(s.topic, s.partition, s.now, s.new, s.note) for s in steps]
    print_table(("TOPIC", "PARTITION", "NOW", "NEW", ""), rows, empty="no partitions")
    number = f"{num_changes} offset{'s' * (num_changes != 1)}"
    if not num_changes:
        say("nothing was changed: every offset is where it shall be")
    elif is_done:
        say(f"{number} of group {group_id} changed")
    else:
        say(f"nothing was changed; add --execute (it changes {number})")
