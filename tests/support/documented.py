"""Runs the commands that a document shows, and compares their output with what it shows.

A document may leave lines out with a line `…`; the lines it shows must be there, in that order and without
gaps.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LEFT_OUT = "…"
PROMPT = "$ "


@dataclass(frozen=True)
class Shown:
    """A command in a document, with its place and the output below it."""

    place: str
    arguments: tuple[str, ...]
    output: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place} {shlex.join(self.arguments)}"


def commands_of(document: Path, program: str) -> Iterator[Shown]:
    """Yield every command of `program` in the console blocks of a document, without its comment."""
    text = document.read_text(encoding="utf-8")
    for block in re.finditer(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line_number = text.count("\n", 0, block.start()) + 2
        found: list[tuple[int, str, list[str]]] = []
        for number, line in enumerate(block[1].splitlines(), line_number):
            if line.startswith(PROMPT):
                found.append((number, line.removeprefix(PROMPT), []))
            elif found[-1][1].endswith("\\"):
                found[-1] = (found[-1][0], found[-1][1][:-1] + line, found[-1][2])
            else:
                found[-1][2].append(line)
        for number, command, output in found:
            arguments = shlex.split(command, comments=True)
            if arguments[0] == program:
                yield Shown(f"{document.name}:{number}", tuple(arguments[1:]), tuple(output))


def differences(shown: tuple[str, ...], printed: list[str]) -> str:
    """Return an empty text, or the shown lines that were not printed."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    is_begun, is_ended = bool(parts[0]), bool(parts[-1])
    at = 0
    for part in filter(None, parts):
        places = [n for n in range(at, len(printed) - len(part) + 1) if printed[n : n + len(part)] == part]
        if not places or (is_begun and at == 0 and places[0] != 0):
            return "not printed there:\n" + "\n".join(part) + "\nprinted:\n" + "\n".join(printed)
        at = places[0] + len(part)
    if is_ended and shown and at != len(printed):
        return "printed after the end of what is shown:\n" + "\n".join(printed[at:])
    return ""


def check(shown: Shown, say: Callable[[tuple[str, ...]], str]) -> str:
    """Run a command (`say` returns its output) and compare; return an empty text, or the fault."""
    found = differences(shown.output, [line.rstrip() for line in say(shown.arguments).splitlines()])
    return f"{shown}: {found}" if found else ""
