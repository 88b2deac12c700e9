"""No text tells a user to install another project's package.

`quorate` on the package index belongs to others, with a command of the same name, and `quorate-coordinator`
is not published. So everything we print or document installs from a checkout or from a wheel file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMMAND = "quorate"
DISTRIBUTION = "quorate-coordinator"
NOT_OURS = {"build", "dist", "data", "quorate-data", "__pycache__"}
"""Folders that git does not keep, besides those that begin with a dot."""

INSTALLER = re.compile(
    r"\b(?:pip[\d.]*|pipx|uvx?|conda|mamba|poetry|pdm|easy_install|brew|apt-get|docker|podman)\b(?![.=])"
)
END_OF_COMMAND = re.compile(r"\n|&&|\|\||[;|#]")
NAME = rf"{COMMAND}(?:[-_.]coordinator)?"
BY_NAME = re.compile(rf"{NAME}(?:\[[\w,-]*\])?(?:[=<>~!@:].*)?", re.IGNORECASE)
REQUIREMENT = re.compile(rf"(?<![\w./-]){NAME}(?:\[[a-z,]+\]|\s*[=~]=\s*\d)", re.IGNORECASE)
"""Requirements that only installers read, with or without an installer in front."""


def foreign_installs(text: str) -> list[str]:
    """Return the commands and requirements that would fetch a package of our names from an index."""
    joined = re.sub(r"\\\n\s*|[\"']\s*\n\s*f?[\"']", " ", text)  # a command's or a text's parts
    found = REQUIREMENT.findall(joined)
    for installer in INSTALLER.finditer(joined):
        command = END_OF_COMMAND.split(joined[installer.start() :], maxsplit=1)[0]
        words = (word.strip("\"'`,.:()") for word in command.replace('"', " ").split())
        if any(BY_NAME.fullmatch(word.removesuffix("]") if "[" not in word else word) for word in words):
            found.append(command)
    return found


def our_texts() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name not in NOT_OURS and not re.match(r"\.|.*\.egg-info$", name)
        ]
        yield from (Path(folder, name) for name in names)


def test_no_hint_and_no_document_fetches_what_a_stranger_published() -> None:
    read, found = set(), {}
    for path in our_texts():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # logs and pictures
        read.add(path.relative_to(ROOT).as_posix())
        if foreign := foreign_installs(text):
            found[path] = foreign
    assert found == {}
    assert read >= {
        "Makefile",
        "README.md",
        "docs/pipeline.md",
        "quorate/entry.py",
        "history/export/formats.py",
    }


@pytest.mark.parametrize("name", [COMMAND, DISTRIBUTION, DISTRIBUTION.replace("-", "_"), COMMAND.title()])
@pytest.mark.parametrize(
    "told",
    [
        "pip install {}",
        "(python -m pip install -U --force-reinstall {})",
        "or: `pip install '{}[spark]'`",
        "needs {}[spark,jdk]",
        "pip install pandas {}==0.1.0 pyarrow",
        "{} == 0.1",
        "pipx install {}",
        "pipx run {} up",
        "uvx {} up",
        "uv tool install {}",
        "uv run --with {}, python",
        "RUN uv venv \\\n && uv pip install --python /opt/bin/python \\\n {} 'pandas<3'",
        '"install it again (pip install "\n    f"{})"',
        '["pip", "install", "{}"]',
        "docker run {}:latest",
    ],
)
def test_every_command_that_would_fetch_it_is_found(told: str, name: str) -> None:
    assert foreign_installs(told.replace("{}", name))


@pytest.mark.parametrize(
    "told",
    [
        "pip install -e '.[spark]' in Quorate's checkout",
        f"pip install 'dist/{DISTRIBUTION.replace('-', '_')}-0.1.0-py3-none-any.whl[spark]'",
        f"environment/bin/pip install msgpack && {COMMAND} up",
        f"uv venv /opt/{COMMAND}",
        f"as pip leaves them.\n{COMMAND} up",
    ],
)
def test_a_path_and_another_command_are_no_package_of_others(told: str) -> None:
    assert foreign_installs(told) == []


def test_the_distribution_has_a_name_of_its_own_and_the_command_keeps_its() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert project["scripts"] == {COMMAND: "quorate.entry:main"}
