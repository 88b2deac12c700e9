"""The choice of Java, the error if there is none to use, and the shim for one that lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quorate.spark.errors import NoSpark
from quorate.spark.session import java
from quorate.spark.session.java import find_java, write_shim
from records.installation import how_to_install

FULL = """#!/bin/sh
echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2
echo 'openjdk version "{version}" 2026-01-20' >&2
"""
SMALL = """#!/bin/sh
for argument do
  case "$argument" in --add-modules=*) echo 'Module jdk.incubator.vector not found'; exit 1;; esac
done
[ "$1" = -version ] && echo 'openjdk version "{version}" 2026-01-20' >&2 && exit
for argument do echo "<$argument>"; done
"""
OLD = """#!/bin/sh
[ "$1" = -version ] || { echo 'Unrecognized option'; exit 1; }
echo 'java version "{version}"' >&2
"""
BROKEN = "#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n"


@pytest.fixture(autouse=True)
def no_packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "PACKAGED", "no_such_package")


def make_java(home: Path, program: str, version: str = "21.0.1") -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(program.replace("{version}", version))
    path.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", FULL, "17.0.15")
    other = make_java(tmp_path / "other", FULL)
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, (str(other),))
    assert (found.home, found.version, found.lacks_module) == (home, 17, False)


def test_java_of_path_is_found_through_its_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", FULL)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}, ()).home == home


def test_one_that_is_too_old_or_does_not_run_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD, "1.8.0_402")
    broken = make_java(tmp_path / "broken", BROKEN)
    good = make_java(tmp_path / "places" / "jdk-25", FULL, "25")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")}, (str(tmp_path / "places" / "*"),))
    assert (found.home, found.version) == (good, 25)


def test_only_an_old_one_is_said_with_its_place_and_both_ways_out(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", OLD, "1.8.0_402")
    with pytest.raises(NoSpark) as refused:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, ())
    said = str(refused.value)
    assert f"Java 8 in {old}" in said
    assert "17 or newer" in said
    assert how_to_install("jdk") in said
    assert "\n" not in said


def test_none_is_said_in_one_line_with_both_ways_out() -> None:
    with pytest.raises(NoSpark) as refused:
        find_java({"PATH": ""}, ())
    said = str(refused.value)
    assert f"install a JDK of version 17 or newer, or {how_to_install('jdk')}" in said
    assert "\n" not in said


def test_a_java_without_the_module_gets_a_shim_that_leaves_out_that_argument_alone(tmp_path: Path) -> None:
    small = find_java({"JAVA_HOME": str(make_java(tmp_path / "it's small", SMALL)), "PATH": ""}, ())
    assert small.lacks_module
    home = write_shim(small, tmp_path / "shim")
    assert (home.stat().st_mode & 0o777, (home / "bin").stat().st_mode & 0o777) == (0o700, 0o700)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "--add-opens=x=y"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>", "<--add-opens=x=y>"]
