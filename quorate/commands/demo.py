"""`quorate demo`: the tour."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quorate.commands.options import Json, option
from quorate.errors import CommandError, ExitCode
from quorate.output import notify, print_json, say, unwritten_file

if TYPE_CHECKING:
    from quorate.demo.scene import Result


def demo(
    keep: Annotated[
        Path | None, option("--keep", "DIR", "Keep the nodes' data and the consumers' files in DIR.")
    ] = None,
    json: Json = False,
) -> None:
    """Run the tour: three nodes, seven consumers, the leader killed, the proof from the files alone (25 s).

    Example: quorate demo --keep /tmp/quorate-demo
    """
    if importlib.util.find_spec("confluent_kafka") is None:
        from records.installation import how_to_install

        raise CommandError(
            "the demo runs real Kafka consumers and needs the package confluent-kafka",
            hint=how_to_install("demo"),
            code=ExitCode.INSTALLATION,
        )
    directory = _demo_directory(keep)
    from quorate.demo.display import Display
    from quorate.demo.tour import Tour

    display = Display(sys.stderr if json else sys.stdout)
    is_evidence = True  # for a claim that did not hold
    try:
        result = Tour(directory, display).run()
        is_evidence = not result.held
    except KeyboardInterrupt:
        is_evidence = False
        raise
    finally:
        if keep is None and not is_evidence:
            shutil.rmtree(directory, ignore_errors=True)
        elif is_evidence:
            notify(f"the files are kept in {directory}")
    if json:
        print_json(result.as_dict())
    else:
        _print_ending(result, keep)
    if not result.held:
        false = [claim.text for claim in result.claims if not claim.held]
        raise CommandError(f"{len(false)} of {len(result.claims)} claims did not hold: {'; '.join(false)}")


def _demo_directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="quorate-demo-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise CommandError(
                f"{keep} is not empty", hint="give a new directory with --keep", code=ExitCode.USAGE
            )
    except OSError as error:
        raise unwritten_file(keep, error) from error
    return keep


def _print_ending(result: Result, keep: Path | None) -> None:
    held = sum(claim.held for claim in result.claims)
    say()
    further = "Look further:" if keep else "Keep the files with `quorate demo --keep DIR` to look further."
    say(f"{held} of {len(result.claims)} claims held, in {result.seconds:.1f} s. {further}")
    if keep is None:
        return
    cluster = keep / "cluster"
    print(f"  quorate log compare {cluster}")
    print(f"  quorate log explain {cluster} billing")
    print(f"  quorate log dump {cluster} --group billing")
    print(f"  quorate log replay {cluster} --group billing")
