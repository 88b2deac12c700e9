"""The command line as a whole, and the one place where a failure becomes a line and an exit code.

`run` is all that `entry` needs. Usage errors, anticipated failures and Ctrl-C end in one line on standard
error (one JSON object with `--json`) and an exit code of `quorate.errors.ExitCode`; a traceback is always a
bug.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from quorate.commands import (
    cluster,
    demo,
    docs,
    faults,
    generations,
    groups,
    log,
    node,
    pipeline,
    settings,
    topics,
    up,
)
from quorate.commands.options import TYPED, CommandGroup
from quorate.errors import EXIT_CODE_MEANINGS, CommandError, ExitCode, WrongArguments
from quorate.output import (
    drop_output,
    flush_output,
    notify,
    prepare_output,
    print_json,
    unwritten,
)

_EPILOG = (
    "Exit codes: " + "; ".join(f"{code.value} {text}" for code, text in EXIT_CODE_MEANINGS.items()) + "."
)

_WELCOME = """A Kafka-compatible consumer-group coordinator with a log that explains itself.

Start with `quorate demo`, or run a cluster with `quorate up --nodes 3 --topic orders:12` and point consumers
at it. `quorate docs` lists the documentation.
"""

app = CommandGroup(None, add_completion=True)
app.command("demo", short_help="Run the tour: real consumers, kill -9, replay.")(demo.demo)
app.command("up", short_help="Run a cluster on this machine until Ctrl-C.")(up.up)
app.command("generations", short_help="Compare the protocol's generations.")(generations.generations)
app.command("docs", short_help="Read the documentation.")(docs.docs)
app.add_typer(node.app, name="node")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(cluster.app, name="cluster")
app.add_typer(faults.app, name="faults")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.command("settings", short_help="List the settings of a node.")(settings.settings)


def _print_version(wanted: bool) -> None:
    if wanted:
        from records import RELEASE

        print(f"quorate {RELEASE}")
        raise typer.Exit


@app.callback(help=_WELCOME, epilog=_EPILOG)
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that belong to no command."""


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; does not raise for anything that a user can cause."""
    as_json = "--json" in arguments
    prepare_output()
    command_line = typer.main.get_command(app)
    TYPED.set(arguments)
    try:
        result = command_line.main(arguments or ["--help"], prog_name="quorate", standalone_mode=False)
        flush_output()
        return result if isinstance(result, int) else ExitCode.OK
    except WrongArguments as error:
        error.hint = "; ".join(filter(None, (error.hint, *_example(command_line, arguments))))
        return _report(error, as_json)
    except CommandError as error:
        return _report(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer turns it into an exit with code 1
            return _nobody_reads()
        raise
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        return _report(unwritten(error), as_json)
    except Exception as error:
        usage = _usage_error(error, _example(command_line, arguments))
        if usage is None:
            raise
        return _report(usage, as_json)


def _nobody_reads() -> int:
    """End successfully after the reader of our output has gone (`| head`)."""
    drop_output()
    return ExitCode.OK


def _example(command: Any, arguments: Sequence[str]) -> list[str]:
    """The example in the help of the command that the arguments name, as a hint; none if there is none."""
    for word in arguments:
        inner = getattr(command, "commands", {}).get(word)
        command = command if inner is None else inner
        if not hasattr(command, "commands"):
            break
    found = re.search(r"^Example: (.+)$", command.help or "", re.MULTILINE)
    return [] if found is None else [f"for example `{found[1]}`"]


def _usage_error(error: Exception, example: Sequence[str]) -> CommandError | None:
    """Typer's own complaints as `CommandError`; recognised by a method, as their module varies by release."""
    format_message = getattr(error, "format_message", None)
    if format_message is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "quorate"
    message = format_message().rstrip(".")
    typed = str(getattr(error, "option_name", ""))
    here = _name_here(typed, context)
    if here is not None:
        return CommandError(f"no such option: {typed}", hint=f"it is {here}", code=ExitCode.USAGE)
    hint = "; ".join((*example, f"see `{command} --help`"))
    return CommandError(message, hint=hint, code=ExitCode.USAGE)


OTHER_NAMES = {
    "--from": "--since",
    "--to": "--until",
    "--data-dir": "--data",
    "--dir": "--data",
    "--bootstrap-server": "--bootstrap",
    "--bootstrap-servers": "--bootstrap",
}
"""Options as other tools, and earlier releases of this one, call them."""


def _name_here(option: str, context: Any) -> str | None:
    """The command's own name for an option that it does not know by this one."""
    name = OTHER_NAMES.get(option)
    known = () if context is None else context.command.params
    return name if any(name in parameter.opts for parameter in known) else None


def _report(error: CommandError, as_json: bool) -> int:
    if as_json:
        print_json(error.as_dict(), stream=sys.stderr)
    else:
        notify(f"quorate: error: {error}")
    return error.code
