"""A test's helpers are in its own folder, in tests/support or in tests, never in another test module."""

import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests import support

TESTS = Path(__file__).parent
ROOT = TESTS.parent
IMPORT = re.compile(r"^ *(?:from (\.*[\w.]*) import (\w+)|import (tests[\w.]*))", re.MULTILINE)


def _imported(path: str, source: str) -> set[str]:
    """Return the modules of tests that a module imports."""
    package = path.split("/")[:-1]
    found = set()
    for origin, name, plain in IMPORT.findall(source):
        level = len(origin) - len(origin.lstrip("."))
        parents = package[: len(package) + 1 - level] if level else []
        module = ".".join([*parents, *filter(None, [origin.lstrip(".") or plain])])
        found |= {module, f"{module}.{name}"}
    return {
        one
        for one in found
        if one.startswith("tests.") and Path(ROOT, *one.split(".")).with_suffix(".py").is_file()
    }


@cache
def _imports() -> dict[str, set[str]]:
    """Return the modules of tests that each module of tests, benchmarks and examples imports, by path."""
    paths = [
        path for room in ("tests", "benchmarks", "examples") for path in sorted((ROOT / room).rglob("*.py"))
    ]
    assert len(paths) > 300, "no modules found"
    named = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {path: _imported(path, source) for path, source in named.items()}


def test_no_module_imports_from_a_test_module() -> None:
    edges = {(path, module) for path, modules in _imports().items() for module in modules}
    assert len(edges) > 300, "no imports found"
    assert not {edge for edge in edges if ".test_" in edge[1]}


def test_a_folder_imports_only_its_own_helpers_and_the_shared_ones() -> None:
    def is_allowed(path: str, module: str) -> bool:
        own = ".".join(path.split("/")[:2]) + "."
        return module.startswith((own, "tests.support.")) or module.count(".") == 1

    tests = {path: modules for path, modules in _imports().items() if path.startswith("tests/")}
    assert not {
        (path, module)
        for path, modules in tests.items()
        for module in modules
        if not is_allowed(path, module)
    }


def test_benchmarks_do_not_depend_on_tests() -> None:
    assert not {path for path, modules in _imports().items() if path.startswith("benchmarks/") and modules}


def test_the_classes_of_helpers_have_names_of_their_own() -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("*.py")):
        if not path.name.startswith("test_"):
            for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
                paths[name].append(path.relative_to(ROOT).as_posix())
    assert len(paths) > 100, "no classes found"
    assert not {name: found for name, found in paths.items() if len(found) > 1}


def test_the_map_of_the_shared_helpers_names_every_module_and_nothing_else() -> None:
    named = re.findall(r"^ {4}(\w+) {2,}\S", support.__doc__ or "", re.MULTILINE)
    assert sorted(named) == sorted(one.name for one in pkgutil.iter_modules(support.__path__))


def test_the_readme_names_every_folder_and_only_files_that_exist() -> None:
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    folders = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert sorted(folders) == sorted(path.parent.name for path in TESTS.glob("*/__init__.py"))
    named = re.findall(r"`([\w/]+/[\w-]*(?:\.\w+)?)`", text)
    assert len(named) > 60, "no files found"
    assert not [name for name in named if not (TESTS / name).exists()]


def test_make_looks_for_each_kind_of_test_wherever_there_is_one() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folders = {
        kind: tuple(f"{folder}/" for folder in named.split())
        for kind, named in re.findall(r"-m '(\w+) and not slow' (.+)", makefile)
    }
    assert {"failover", "java", "languages", "spark"} <= folders.keys()
    marks = {kind: re.compile(rf"pytest\.mark\.{kind}\b|add_marker\(\"{kind}\"\)") for kind in folders}
    elsewhere = [
        (kind, path)
        for path in (one.relative_to(ROOT).as_posix() for one in sorted(TESTS.rglob("*.py")))
        for kind, mark in marks.items()
        if not path.startswith(folders[kind]) and mark.search((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert elsewhere == []
