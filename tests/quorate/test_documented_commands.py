"""Every command of `quorate` that a document, a help text or a message shows exists, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from quorate.app import app
from tests.support.documented import Shown, commands_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")]
)
SOURCES = sorted((ROOT / "quorate").rglob("*.py"))
COMMANDS_MIN = 200
"""Commands in all documents; fewer means that this test no longer finds them."""
NO_COMMAND = ("…", "...", "COMMAND", "ACTION")
"""Words that stand for any command."""

root: Any = typer.main.get_command(app)


def inline(document: Path) -> Iterator[Shown]:
    """Yield the commands within sentences: `quorate log stats DIR`."""
    text = document.read_text(encoding="utf-8")
    for found in re.finditer(r"`{1,2}(quorate [^`]+)`", text):
        place = f"{document.name}:{text.count(chr(10), 0, found.start()) + 1}"
        words = re.sub(r"[\[\]]|\s*\\?\n\s*|\"\s*\n\s*f?\"", " ", found[1]).split()
        yield Shown(place, tuple(words[1:]), ())


def fault(shown: Shown) -> str:
    """Return an empty text, or what no command of that name has."""
    command, words = root, list(shown.arguments)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        for name in words[0].split("|"):
            if name in NO_COMMAND or name.startswith("{"):
                return ""
            if name not in command.commands:
                return f"{shown}: there is no command {name}"
        command = command.commands[words.pop(0).split("|")[0]]
    if hasattr(command, "commands"):
        command = command.commands.get("run", command)  # `quorate node` alone runs one
    if command.context_settings.get("ignore_unknown_options"):  # the options are settings of a node
        return ""
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
    options = [re.split(r"[=…,.;:)]", word)[0] for word in words if re.match(r"--?[a-z]", word)]
    unknown = [one for name in options for one in name.split("|") if one not in known]
    return f"{shown}: there is no option {unknown[0]}" if unknown else ""


def test_documents_show_commands_and_options_that_exist() -> None:
    shown = [one for document in DOCUMENTS for one in (*commands_of(document, "quorate"), *inline(document))]
    assert len(shown) >= COMMANDS_MIN
    assert [said for said in map(fault, shown) if said] == []


def test_help_and_messages_show_commands_and_options_that_exist() -> None:
    shown = [one for source in SOURCES for one in inline(source)]
    assert [said for said in map(fault, shown) if said] == []


@pytest.mark.parametrize("wrong", ["log explian DIR", "log explain DIR --grop x", "cluster kill|stopp 1"])
def test_a_command_that_does_not_exist_is_found(wrong: str) -> None:
    assert fault(Shown("here", tuple(shlex.split(wrong)), ()))


@pytest.mark.parametrize(
    "shown",
    [one for document in DOCUMENTS for one in commands_of(document, "quorate")],
    ids=str,
)
def test_a_command_that_a_document_shows_is_parsed(shown: Shown, tmp_path: Path) -> None:
    """Its arguments are complete and its values of the right kinds; nothing is run."""
    words = [word for word in shown.arguments if word != "…"]
    context = root.make_context("quorate", words, resilient_parsing=False)
    command, rest = root, [*context._protected_args, *context.args]
    while hasattr(command, "commands") and rest:
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
