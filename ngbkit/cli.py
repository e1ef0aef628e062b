# PYTHON_ARGCOMPLETE_OK
"""The shell: one loop over the records of commands, `ngbkit.commands.command.Command`.

`ngbkit --help` lists them.

Tables go to stdout, progress and messages to stderr. It exits with 0; 1 where a run failed, no trial gave a result, or
a gate failed; 2 where the arguments are not valid; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP and 152 at the
limit of processor time, which keep what was measured; 141 where its reader left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from ngbkit import __version__, limits, registry
from ngbkit.commands.answer import BROKEN_PIPE, FAILED, INTERRUPTED, INVALID, OK
from ngbkit.commands.command import OVERWRITE, Command, load_commands, require
from ngbkit.commands.parser import Parser, add_arguments, parse
from ngbkit.commands.shell import ShellCall, check_target, print_error, show_warnings
from ngbkit.commands.signals import stop_in_order
from ngbkit.commands.streams import hold_output, open_streams
from ngbkit.errors import MissingDependencyError, NgbkitError, UsageError
from ngbkit.files import explain_errors
from ngbkit.user_text import read_docstring

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "INVALID", "OK", "build_parser", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line, by default this process's; return the exit code."""
    open_streams()
    limits.reserve_processor_time()
    if "_ARGCOMPLETE" in os.environ:  # Tab was pressed in a shell
        from ngbkit.commands.shell_completion import complete_line, split_words

        commands = _load(split_words()[1:])
        complete_line(build_parser(commands), commands)
        return OK
    with stop_in_order() as handler:
        try:
            with show_warnings(), hold_output(), explain_errors():
                limits.check()
                return _run(sys.argv[1:] if argv is None else argv)
        except (UsageError, MissingDependencyError) as error:
            return print_error(str(error), INVALID)
        except NgbkitError as error:
            return print_error(str(error), FAILED)
        except BrokenPipeError:
            return BROKEN_PIPE
        except KeyboardInterrupt as interrupt:
            code = INTERRUPTED if handler.number is None else 128 + handler.number
            limit = limits.describe("SIGXCPU") if handler.number == signal.SIGXCPU else ""
            return print_error(" ".join(filter(None, [limit, str(interrupt)])) or "stopped.", code)


def build_parser(commands: Mapping[str, Command]) -> Parser:
    """Build the parser of the command line with those commands."""
    parser = Parser(prog="ngbkit", description=read_docstring(import_module("ngbkit")).partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"ngbkit {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in commands.items():
        subparser = subparsers.add_parser(name, help=command.help, description=command.help)
        add_arguments(subparser, command.shell_arguments)
        subparser.set_defaults(command=command, parser=subparser)
    return parser


def _load(words: Sequence[str]) -> dict[str, Command]:
    """Load the command that a line names, or all where it names none: others would only take time."""
    names = set(words[:1]) & set(registry.list_names(registry.COMMANDS))
    return load_commands(names or None) or load_commands()


def _run(words: Sequence[str]) -> int:
    """Parse the words of a command line, carry out its command, and print the answer."""
    args = parse(build_parser(_load(words)), words)
    command: Command = args.command
    require(command.needs)
    if OVERWRITE in command.shell_arguments:
        check_target(args)
    answer = command.run(ShellCall(args))
    if answer is None:
        return OK
    if getattr(args, "json", False):
        print(json.dumps(answer.json, indent=2))
    elif text := answer.to_text():
        print(text)
    return answer.code
