"""The program's entry: makes sure that the modules to be imported are our own.

Our packages install at top level with ordinary names (`records`, `wire`, `cluster`), and a user's working
directory may well hold a `records.py` or a `cluster/` of its own. Importing that instead of ours would end in
a confusing traceback, so before any of them is imported

* the working directory is removed from `sys.path` (`python -m quorate` puts it there), and `PYTHONSAFEPATH`
  keeps it off the path of every child process;
* each package is looked up without importing it, and must be found beside this one.

This module therefore imports only a little of the standard library; `main` imports the command line after the
checks.
"""

from __future__ import annotations

import importlib.util
import os
import sys

ROOMS = ("records", "wire", "client", "coordinator", "lineage", "raftlog", "cluster", "history")

INSTALLATION_EXIT_CODE = 6  # ExitCode.INSTALLATION; errors.py may not be imported before the check
INTERRUPTED_EXIT_CODE = 130  # ExitCode.INTERRUPTED


def main() -> int:
    """Run the command line on `sys.argv`; returns the exit code (see `quorate.errors.ExitCode`)."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    use_safe_path(home)
    obstacle = foreign_module(home)
    if obstacle is not None:
        print(obstacle, file=sys.stderr)
        return INSTALLATION_EXIT_CODE
    try:
        from quorate.app import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # Ctrl-C during the imports
        return INTERRUPTED_EXIT_CODE


def use_safe_path(home: str) -> None:
    """Remove the working directory from the front of `sys.path`, here and in every child process.

    `home` stays, even if it is the working directory: a checkout that is not installed runs from there.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    if sys.flags.safe_path or not sys.path:
        return
    first = os.path.abspath(sys.path[0])
    if first == os.path.abspath(os.getcwd()) and first != home:
        del sys.path[0]


def foreign_module(home: str) -> str | None:
    """One line about the first package that Python would not import from `home`, or None if all is well."""
    for room in ROOMS:
        try:
            spec = importlib.util.find_spec(room)
        except ValueError:  # already imported elsewhere, without a spec
            spec = None
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        found = next((place for place in places if place is not None), None)  # maybe without __init__.py
        if found is None:
            is_checkout = os.path.isfile(os.path.join(home, "pyproject.toml"))
            return (
                f"quorate: error: the package {room!r} of Quorate in {home} is missing or not installed; "
                + (
                    "run `pip install -e .` there"
                    if is_checkout
                    else "install the wheel with --force-reinstall"
                )
            )
        own = os.path.join(os.path.realpath(os.path.join(home, room)), "")
        if not os.path.join(os.path.realpath(found), "").startswith(own):
            return (
                f"quorate: error: {found} is in the way: Python takes it for Quorate's own package {room!r}. "
                "Remove its directory from PYTHONPATH, rename it, or install Quorate into a virtual "
                "environment of its own"
            )
    return None
