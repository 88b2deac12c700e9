"""`quorate docs`: the documentation of this version, from the checkout or as the wheel brought it."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Annotated

from quorate.commands.options import Json, argument
from quorate.errors import CommandError, ExitCode
from quorate.output import print_json, print_table, put, terminal_width

INSTALLED = "share/doc/quorate/*.md"
"""The wheel puts the pages here, below the environment's directory (pyproject.toml, data-files)."""

_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z`\"\[])")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def docs(
    topic: Annotated[str | None, argument("[TOPIC]", "The page; without it, the list of all pages.")] = None,
    json: Json = False,
) -> None:
    """Read the documentation of this version: a list of the pages, or one of them.

    Example: quorate docs history
    """
    pages = _pages()
    if topic is None:
        rows = [(name, _first_sentence(_text(path))) for name, path in pages.items()]
        if json:
            print_json([{"topic": name, "about": about} for name, about in rows])
            return
        print_table(("TOPIC", "ABOUT"), rows)
        return
    name = _name_of(topic)
    if name not in pages:
        nearest = difflib.get_close_matches(name, pages, n=1, cutoff=0.5)
        meant = f"did you mean {nearest[0]}? " if nearest else ""
        raise CommandError(
            f"the documentation has no page {topic}",
            hint=f"{meant}`quorate docs` lists the pages",
            code=ExitCode.USAGE,
        )
    text = _text(pages[name])
    if json:
        print_json({"topic": name, "text": text})
    elif terminal_width(sys.stdout) is None:
        put(text.rstrip("\n"))
    else:
        import pydoc

        pydoc.pager(text)


def _pages() -> dict[str, Path]:
    """The pages by name, README first."""
    from importlib import metadata

    from records.installation import DISTRIBUTION, checkout

    home = checkout()
    if home is not None:
        found = [home / "README.md", *(home / "docs").rglob("*.md")]
    else:
        try:
            files = metadata.files(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            files = []
        found = [Path(str(file.locate())) for file in files if file.match(INSTALLED)]
    pages = {_name_of(path.name): path for path in found if path.is_file()}
    if not pages:
        raise CommandError(
            "this copy of Quorate has no documentation beside it",
            hint="a checkout has it in docs/, and a wheel of `make wheel` brings it along",
            code=ExitCode.UNREADABLE,
        )
    return dict(sorted(pages.items(), key=lambda page: (page[0] != "readme", page[0])))


def _name_of(file: str) -> str:
    """A page's name from its own, or from a link to it: `history`, history.md, docs/history.md#questions."""
    return file.partition("#")[0].rpartition("/")[2].removesuffix(".md").lower()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _first_sentence(page: str) -> str:
    """The sentence with which a page opens below its title, without links."""
    paragraph = page.partition("\n\n")[2].partition("\n\n")[0]
    return _LINK.sub(r"\1", _SENTENCE_END.split(" ".join(paragraph.split()))[0])
