"""No text tells a user to install another project's package, or points to what an installed copy has not.

`quorate` on the package index belongs to others, with a command of the same name, and `quorate-coordinator`
is not published. So everything we print or document installs from a checkout or from a wheel file.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from records import installation

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
DOCUMENTED = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
WRITTEN = re.compile(
    r"(?:(?<= )(?:--html|--output|--out|--report|-o|-out|-keyout|zip|venv --copies)|[^>]>) ([\w./-]+)"
)
"""A file that a documented command writes: the value of one of these options, or the file after >."""

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


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_distribution_has_a_name_of_its_own_and_the_command_keeps_its() -> None:
    assert project()["name"] == installation.DISTRIBUTION == DISTRIBUTION
    assert project()["scripts"] == {COMMAND: "quorate.entry:main"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site-packages of a wheel: metadata as setuptools writes it, a page where the wheel puts it."""
    site = tmp_path / "lib" / "site-packages"
    info = site / f"{DISTRIBUTION.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    page = tmp_path / "share" / "doc" / "quorate" / "history.md"
    page.parent.mkdir(parents=True)
    page.write_text("# History\n\nFor operators. More.\n")
    (info / "RECORD").write_text("records/errors.py,,\n../../share/doc/quorate/history.md,,\n")
    extras = project()["optional-dependencies"].items()
    required = [f'Requires-Dist: {line}; extra == "{extra}"' for extra, lines in extras for line in lines]
    head = ["Metadata-Version: 2.4", f"Name: {DISTRIBUTION}", "Version: 0.1", "Requires-Dist: msgpack>=1.1"]
    (info / "METADATA").write_text("\n".join([*head, *required]))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(installation, "__file__", str(site / "records" / "installation.py"))
    (site / "pyproject.toml").write_text('[project]\nname = "left here by another wheel"\n')
    return site


def test_a_hint_of_a_checkout_installs_its_extras_from_there() -> None:
    assert installation.how_to_install("spark", "jdk") == f"run `pip install -e '.[spark,jdk]'` in {ROOT}"


@pytest.mark.parametrize("extra", sorted(project()["optional-dependencies"]))
def test_a_hint_of_a_wheel_installs_what_the_extra_lists(extra: str, installed: Path) -> None:
    quoted = " ".join(f"'{line}'" for line in project()["optional-dependencies"][extra])
    assert installation.how_to_install(extra) == f"run `pip install {quoted}`"


def test_a_requirement_of_two_extras_is_named_once(installed: Path) -> None:
    assert installation.how_to_install("export", "store") == "run `pip install 'pyarrow>=17'`"


def test_code_without_metadata_names_the_extra(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "DISTRIBUTION", "no-such-distribution")
    assert installation.how_to_install("spark") == "install what pyproject.toml lists for spark"


def test_a_wheel_has_its_pages_and_says_where_they_are_if_not(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["docs"]) == 0
    assert capsys.readouterr().out == "TOPIC    ABOUT\nhistory  For operators.\n"
    assert run(["docs", "docs/history.md#questions"]) == 0
    assert capsys.readouterr().out == "# History\n\nFor operators. More.\n"
    monkeypatch.setattr(installation, "DISTRIBUTION", "no-such-distribution")
    assert run(["docs"]) == ExitCode.UNREADABLE
    assert "has no documentation beside it" in capsys.readouterr().err


def test_a_checkout_lists_every_page_with_its_opening_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "--json"]) == 0
    listed = {one["topic"]: one["about"] for one in json.loads(capsys.readouterr().out)}
    assert list(listed) == ["readme", *sorted(path.stem for path in (ROOT / "docs").rglob("*.md"))]
    assert listed["pipeline"].endswith("more log than one machine reads at ease.")
    assert all(re.fullmatch(r"[A-Z].{20,}[.]", about) for about in listed.values())


def test_a_wrong_page_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "histroy"]) == ExitCode.USAGE
    assert "no page histroy; did you mean history? `quorate docs` lists the pages" in capsys.readouterr().err


def test_no_printed_text_names_a_file_that_only_a_checkout_has() -> None:
    """Docstrings and comments may; printed texts name pages by `quorate docs`, and only those that exist."""
    printed = dict(printed_texts())
    assert not {place: text for place, text in printed.items() if re.search(r"\bdocs/[\w-]+", text)}
    named = set(re.findall(r"`quorate docs ([\w-]+)`", "\n".join(printed.values())))
    assert "configuration" in named
    assert named <= {path.stem for path in (ROOT / "docs").rglob("*.md")}


def packages() -> list[str]:
    """The top-level packages of the wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    return [name for name in settings["packages"]["find"]["include"] if not name.endswith(".*")]


def test_a_wheel_has_no_folder_that_a_command_wrote_beside_the_packages() -> None:
    """`quorate up` and `quorate pipeline` write into the checkout by default."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    include = settings["packages"]["find"]["include"]

    def is_packed(folder: str) -> bool:  # as setuptools decides it
        return any(fnmatchcase(folder.replace("/", "."), pattern) for pattern in include)

    assert all(is_packed(name) for name in [*packages(), "quorate/commands", "cluster/http/files"])
    assert not any(
        is_packed(name) for name in ["quorate-data", "quorate-data/node-1", "quorate-report", "tests"]
    )


def printed_texts() -> Iterator[tuple[str, str]]:
    """Yield the strings that somebody may see, by place, in modules that mention the documents.

    Docstrings are left out, except those of commands, which are their help."""
    for path in sorted(path for room in packages() for path in ROOT.glob(f"{room}/**/*.py")):
        source = path.read_text(encoding="utf-8")
        if "docs" not in source:
            continue
        nodes = list(ast.walk(ast.parse(source)))
        helps = {
            id(node.body[0])
            for node in nodes
            if "commands" in path.parts and isinstance(node, ast.FunctionDef) and node.name[0] != "_"
        }
        docstrings = {
            id(node.value) for node in nodes if isinstance(node, ast.Expr) and id(node) not in helps
        }
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


@pytest.mark.parametrize("document", DOCUMENTED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_git_ignores_what_the_documented_commands_write(document: Path) -> None:
    """A command line names files relative to the checkout, or to the folder of an example's README."""
    lines = [line for line in document.read_text().splitlines() if line.startswith("$ ")]
    written = {name for line in lines for name in WRITTEN.findall(line) if not name.startswith("/")}
    folder = document.parent if document.parent.parent.name == "examples" else ROOT
    for name in written:
        asked = subprocess.run(["git", "check-ignore", name, f"{name}/"], cwd=folder, stdout=subprocess.PIPE)
        assert asked.stdout, name


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Run make as from a shell, although this test may run under another make."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    return subprocess.run(
        ["make", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_make_refuses_an_old_python_in_one_line_of_its_own(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\necho 'Quorate needs another' >&2; exit 1\n")
    python.chmod(0o755)
    made = make("demo", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    assert made.returncode == 2
    assert "sys.version" not in made.stdout + made.stderr
    assert made.stderr.startswith("Quorate needs another\nmake: ***")


def test_make_clean_removes_what_git_ignores_and_nothing_that_a_user_wrote() -> None:
    words = make("-n", "clean").stdout.split()
    assert words == ["rm", "-rf", ".venv", "build", "dist", f"{DISTRIBUTION.replace('-', '_')}.egg-info"]
